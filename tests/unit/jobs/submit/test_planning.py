"""From a request to a job, or to all that is wrong with it."""

import math
import re
from dataclasses import replace
from operator import attrgetter
from types import SimpleNamespace

import pytest
from cluster_snapshots import EFA, GPU, NEURON, group, outputs

from trainium_eks.jobs.objects.environment import CHECKPOINT_SECONDS, checkpoint_seconds, environment
from trainium_eks.jobs.objects.job import Program, Topology
from trainium_eks.jobs.submit import cluster_facts, planning
from trainium_eks.jobs.submit.planning import cache_key, compiler_of, graph_options
from trainium_eks.jobs.submit.requests import Facts, JobRequest, Submission
from trainium_eks.model.node_labels import EC2_TOPOLOGY_LABELS, ULTRASERVER_LABELS
from trainium_eks.model.validation.problems import Problem, Severity

IMAGE = "1.dkr.ecr.us-west-2.amazonaws.com/train:2.9.0-sdk2.30.0-ubuntu24.04"
REQUEST = JobRequest(program=Program("train.py"))
FACTS = Facts(is_local=False, image=IMAGE, unique="x7k2f")

BLOCK = {"capacity": "capacity-block", "reservation": "cr-0123456789abcdef0"}
GROUPS = [
    group("ng1", NEURON, 8, 2),
    {**group("small", NEURON, 8, 0), "instanceType": "trn1.2xlarge", "resources": {NEURON: 1}},
    {**group("trn2", NEURON, 16, 0), "instanceType": "trn2.48xlarge", **BLOCK},
    group("gpu", GPU, 4, 0),
    {**group("inf", NEURON, 0, 0), "instanceType": "inf2.48xlarge", "resources": {NEURON: 12}},
]
ULTRA = {**group("us", NEURON, 16, 0), "instanceType": "trn2u.48xlarge", "maxSize": 8}
TEAM = {"name": "training", "serviceAccount": "trainer", "claim": "fsx-claim", "trainingUserId": 1007}
NAMESPACE = {**TEAM, "queues": ["test", "wide"]}


def _stack(groups, **more):
    return outputs(**{"nodeGroups": groups, "namespaces": [NAMESPACE], **more})


STACK = _stack(
    GROUPS,
    queues={"test": {NEURON: 32, EFA: 32}, "wide": {NEURON: 64}, "theirs": {NEURON: 64}},
    queueNames=["test", "wide", "theirs"],
)
NO_VOLUME = _stack(GROUPS, namespaces=[{**NAMESPACE, "claim": ""}])


def _plan(facts=FACTS, stack=STACK, **changes):
    return planning.plan(replace(REQUEST, **changes), stack, stack.namespaces[0], facts)


def _job(*given, **changes):
    made = _plan(*given, **changes)
    assert isinstance(made, Submission), made
    return made.job


def _refused(*given, **changes):
    """The one problem that a request has."""
    made = _plan(*given, **changes)
    assert isinstance(made, tuple)
    [problem] = [each for each in made if each.severity is Severity.REFUSE]
    return problem


# --- What comes from the stack ----------------------------------------------------------------------------------------


LOCAL = replace(FACTS, is_local=True, image="local/python", image_has_torch=False)
ENDS = replace(FACTS, capacity_ends={"cr-0123456789abcdef0": "2026-12-01T11:30:00Z"})
ONE_QUEUE = {"stack": _stack(GROUPS, queues={"wide": {}}), "queue": "wide"}
DATED = _stack([{**GROUPS[2], "ends": "2026-12-01T11:30:00Z"}])
ETCD = _stack(GROUPS, rendezvous="etcd-server.torchx-etcd:2379")
BIG = _stack([{**GROUPS[0], "instanceType": "trn9.big"}], instanceTypes={"trn9.big": {"like": "trn1.32xlarge"}})
SIZE = ("instance.name", "nodes", "ranks_per_node")


@pytest.mark.parametrize(
    ("given", "fields", "expected"),
    [
        ({}, ("name", "app", "namespace", "queue", "world_size"), ("train-x7k2f", "train", "training", "test", 64)),
        ({}, ("service_account", "claim", "user_id", "image"), ("trainer", "fsx-claim", 1007, IMAGE)),
        ({}, (*SIZE, "backend", "launcher", "retries"), ("trn1.32xlarge", 2, 32, "xla", "torchrun", 50)),
        ({}, ("rendezvous", "grace_seconds", "metrics_port", "capacity_ends"), ("c10d", 300, 9600, "")),
        ({"facts": LOCAL}, ("backend", "launcher", "world_size", "grace_seconds"), ("cpu", "gang", 2, 30)),
        ({"facts": LOCAL}, ("resources.devices", "metrics_port"), ({NEURON: 16, EFA: 8}, 9600)),
        ({**ONE_QUEUE, "group": "gpu"}, SIZE, ("p4d.24xlarge", 2, 8)),
        ({**ONE_QUEUE, "instance_type": "trn2.48xlarge"}, SIZE, ("trn2.48xlarge", 2, 64)),
        ({**ONE_QUEUE, "group": "small"}, SIZE, ("trn1.2xlarge", 1, 2)),
        ({"stack": _stack([{**GROUPS[0], "maxSize": 1}])}, SIZE, ("trn1.32xlarge", 1, 32)),
        ({"stack": BIG}, SIZE, ("trn9.big", 2, 32)),
        ({"nodes": 3, "queue": "wide"}, SIZE, ("trn1.32xlarge", 3, 32)),
        ({"stack": ETCD}, ("rendezvous", "nodes"), ("c10d", 2)),
        ({"stack": ETCD, "rendezvous": "etcd"}, ("rendezvous", "nodes"), ("etcd-server.torchx-etcd:2379", 2)),
        ({"facts": replace(FACTS, metrics_port=20123)}, ("metrics_port", "kind"), (20123, "train")),
        ({"metrics": False}, ("metrics_port", "kind"), (0, "train")),
        ({"precompile": True, "cache_set": "bert"}, ("metrics_port", "kind"), (0, "compile")),
        ({"facts": ENDS, "group": "trn2", "nodes": 1}, ("capacity_ends", "nodes"), ("2026-12-01T11:30:00Z", 1)),
        ({"facts": ENDS}, ("capacity_ends", "nodes"), ("", 2)),
        ({"facts": ENDS, "group": "trn2", "nodes": 1}, ("capacity_block", "capacity_group"),
         (BLOCK["reservation"], "")),
        ({"stack": DATED, "facts": ENDS}, ("capacity_block", "capacity_group"), (BLOCK["reservation"], "trn2")),
        # It is called after what it runs.
        *(({"program": program}, ("app", "nodes"), (app, 2))
          for program, app in ((Program("src/Train_BERT.py"), "train-bert"),
                               (Program(module="trainium_workloads.gradient_sum"), "gradient-sum"),
                               (Program(module="trainium_workloads.bert.pretrain"), "bert"),
                               (Program(module="team.models.pretrain"), "pretrain"), (Program("/opt/1st.py"), "train"),
                               (Program("/opt/" + "long" * 20 + ".py"), "long" * 8))),
    ],
)  # fmt: skip
def test_job_follows_from_the_stack_and_the_request(given, fields, expected):
    assert attrgetter(*fields)(_job(**given)) == expected


THREE = replace(FACTS, network_layers=3)
ULTRA_STACK = _stack([*GROUPS, ULTRA, {**ULTRA, "name": "us2"}], queues={})
IN_ULTRASERVERS = {"stack": ULTRA_STACK, "group": "us", "nodes": 4, "topology": "hard", "tier": "ultraserver"}


def test_switch_layers_are_counted_without_ultraservers():
    def found(*_, **__):
        labels = (*EC2_TOPOLOGY_LABELS[1:], *ULTRASERVER_LABELS, EC2_TOPOLOGY_LABELS[-1])
        tiers = (4, 3, 2, 1, 3)
        return [{"spec": {"tier": tier, "tierName": label}} for tier, label in zip(tiers, labels, strict=True)]

    assert cluster_facts.network_layers(SimpleNamespace(list=found)) == 2


def test_switch_tiers_are_above_ultraserver_tiers():
    for stack, tier, wanted in (
        (STACK, "1", Topology("hard", 1)),
        (ULTRA_STACK, "1", Topology("hard", 3)),
        (ULTRA_STACK, "half", Topology("hard", 1, 2)),
        (ULTRA_STACK, "ultraserver", Topology("hard", 2, 4)),
    ):
        group = "us" if stack is ULTRA_STACK else "ng1"
        assert _job(stack=stack, group=group, nodes=4, queue="wide", topology="hard", tier=tier).topology == wanted


def test_suspicious_option_is_warned_of():
    for given, warning in (
        ({"ranks_per_node": 8}, "--ranks-per-node 32"),
        ({"ranks_per_node": 8, "nodes": 1}, None),
        ({"facts": replace(FACTS, network_layers=0), "topology": "hard"}, "--topology None"),
        ({"facts": THREE, "topology": "hard", "tier": "3"}, None),
    ):
        made = _plan(**given)
        assert [f"{each.path} {each.good}" for each in made.warnings] == [warning][: warning is not None]
        assert {each.severity for each in made.warnings} <= {Severity.WARN}


# --- What is refused, each with what mends it -------------------------------------------------------------------------


COMPILING = replace(FACTS, compiling={(KEY := cache_key("bert", 64, "bf16", "sdk2.30.0")): "bert-compile"})
FILLING = f"^the job bert-compile is filling the compile cache {KEY}; .*trn status bert-compile"
HELD = f"^queue test may use 32 {NEURON}, and 3 nodes of trn1.32xlarge have 48.*wide"
NO_EFA = "^trn1.2xlarge has no EFA, without which its nodes cannot train together; .*trn1.32xlarge"


@pytest.mark.parametrize(
    ("changes", "path", "good", "said"),
    [
        ({"queue": "tset"}, "--queue", "test", "^no queue has this name"),
        ({"queue": "theirs"}, "--queue", "test", "may not use this queue"),
        ({"nodes": 3}, "--nodes", 2, HELD),
        ({"nodes": 9, "queue": "wide", "stack": _stack(GROUPS, queues={})},
         *("--nodes", 4, "^ng1 has at most 4 nodes; .*`maxSize` of ng1")),
        *(({"ranks_per_node": ranks}, "--ranks-per-node", good, "")
          for ranks, good in ((3, 2), (31, 32), (64, 32), (0, 1))),
        ({"group": "gpu", "ranks_per_node": 9},
         *("--ranks-per-node", 8, "^a p4d.24xlarge has 8 GPUs, and takes one rank for each")),
        ({"group": "small", "nodes": 2}, "--nodes", 1, NO_EFA),
        ({"group": "inf", "nodes": 1}, "--group", None, "for inference"),
        ({"group": "gn1"}, "--group", "ng1", ""),
        ({"instance_type": "trn2.48xl"}, "--instance-type", "trn2.48xlarge", ""),
        ({"group": "ng1", "instance_type": "trn2.48xlarge"}, "--instance-type", "trn1.32xlarge", ""),
        ({"group": "gpu", "precompile": True}, "--precompile", None, ""),
        ({"priority": "training-hi"}, "--priority", "training-high", ""),
        ({"precision": "fp8", "backend": "neuron"}, "--precision", "bf16", ""),
        ({"precision": "fp16", "backend": "cpu"}, "--precision", "bf16", ""),
        ({"rendezvous": "etcd"}, "--rendezvous", "c10d", ""),
        ({"retries": 0}, "--retries", 1, ""),
        ({"max_restarts": -1}, "--max-restarts", 0, ""),
        ({"failed_starts": "3,1"}, "--failed-starts", "3:1,2", ""),
        ({"grace": 0}, "--grace", 1, ""),
        ({"topology": "soft", "tier": "0"}, "--tier", "1", ""),
        ({"facts": THREE, "topology": "hard", "tier": "9"}, "--tier", "3", ""),
        ({"topology": "hard", "tier": "half"}, "--tier", "1", "^the network of trn1.32xlarge has no such tier"),
        ({**IN_ULTRASERVERS, "tier": "ultra-server"}, "--tier", "ultraserver", ""),
        ({**IN_ULTRASERVERS, "tier": "half", "nodes": 3}, "--nodes", 4, "half of an UltraServer whole, with 2 nodes"),
        ({**IN_ULTRASERVERS, "nodes": 20}, "--nodes", 16, "^us has at most 8 nodes"),
        ({**IN_ULTRASERVERS, "nodes": 5}, "--nodes", 8, "UltraServer whole, with 4 nodes"),
        ({**IN_ULTRASERVERS, "topology": "soft"}, "--topology", "hard", ""),
        ({**IN_ULTRASERVERS, "topology": None}, "--topology", "hard", ""),
        ({**IN_ULTRASERVERS, "kind": "trainjob"}, "--kind", "volcano", ""),
        ({"topology": "hard", "kind": "pytorchjob"}, "--topology", None, ""),
        ({"data": ("/data/bert/",)}, "--data", "bert", ""),
        ({"data": ("../x",)}, "--data", None, ""),
        ({"ranks_per_node": 10**9, "backend": "cpu"}, "--ranks-per-node", 1, ""),
        ({"name": "My_Job"}, "--name", "my-job", ""),
        ({"name": "a" * 60}, "--name", "a" * 49, ""),
        ({"facts": replace(FACTS, services={"bert": "Deployment bert"}), "name": "bert"},
         *("--name", "bert-x7k2f", r"^the Service bert of another object \(Deployment bert\).*trn serve --stop bert")),
        ({"facts": replace(FACTS, services={"bert-master-0": "Job x"}), "name": "bert", "kind": "pytorchjob"},
         *("--name", "bert-x7k2f", "^the Service bert-master-0 of another object")),
        ({"facts": replace(FACTS, jobs={"bert": "Running"}), "name": "bert"},
         *("--name", "bert-x7k2f", r"^there is a job of this name \(Running\); .*trn cancel bert")),
        ({"facts": replace(FACTS, may_submit=False)},
         *("", None, "may not submit Volcano jobs in the namespace training.*; .*principals")),
        ({"facts": replace(FACTS, staging={"bert/train": "stage-bert"}), "data": ("bert/train",)},
         *("--data", None, "^stage-bert is still bringing it;")),
        ({"facts": replace(FACTS, is_local=True), "backend": "xla"}, "--backend", "cpu", ""),
        ({"cache_set": "bert large"}, "--cache-set", "bert-large", ""),
        ({"facts": COMPILING, "cache_set": "bert"}, "--cache-set", None, FILLING),
        ({"facts": COMPILING, "cache_set": "bert", "precompile": True}, "--cache-set", None, FILLING),
        ({"stack": NO_VOLUME, "data": ("bert",)}, "--data", None, ""),
        ({"stack": NO_VOLUME, "cache_set": "bert"}, "--cache-set", None, ""),
        *(({"program": program}, "--script", None, "one script or module")
          for program in (Program(), Program("train.py", module="train"))),
    ],
)  # fmt: skip
def test_impossible_request_is_refused_with_the_fix(changes, path, good, said):
    problem = _refused(**changes)
    assert (problem.path, problem.good) == (path, good)
    assert re.search(said, f"{problem.reason}; {problem.fix}")


def test_all_problems_of_a_request_are_reported_at_once():
    assert "no node group" in _plan(stack=_stack([]))[0].reason
    missing = Problem("--image", "there is no such image on this machine", "make it")
    assert _refused(replace(FACTS, image_missing=missing)) is missing
    assert _job(COMPILING, cache_set="other").cache
    wrong = {"checkpoint_seconds": -5.0, "state_gb": math.nan, "priority": "none", "program": Program(), "name": "A B"}
    found = {each.path: each for each in _plan(queue="tset", nodes=0, ranks_per_node=5, **wrong)}
    assert found.keys() >= {"--queue", "--ranks-per-node", "--priority", "--script", "--name"}
    assert (found["--queue"].allowed, found["--nodes"].reason) == (("test", "wide"), "it must be 1 or more")
    assert found["--checkpoint-seconds"].reason == found["--state-gb"].reason == "it must be 0 or more"


# --- Compile caches ---------------------------------------------------------------------------------------------------


def test_cache_directory_depends_on_everything_that_shapes_graphs():
    job = _job(cache_set="bert-large", program=Program("t.py", arguments=("--batch_size", "16", "--max_steps=10")))
    assert (job.cache.key, job.cache.options) == ("bert-large-64x-bf16-sdk2.30.0", {"batch_size": "16"})
    images = (IMAGE, "repo/train:a1b2c3", "localhost:5000/train", "repo/train:v1@sha256:abc")
    assert [compiler_of(each) for each in images] == ["sdk2.30.0", "a1b2c3", "latest", "v1"]
    assert cache_key("../m/..", 64, "bf16", "a/../b") == "m-64x-bf16-a-..-b"
    trial = ("--batch_size", "16", "--grad_accum_usteps", "32", "--steps_this_run", "10", "--fused")
    training = ("--batch_size=16", "--grad-accum-usteps", "32", "--output_dir", "/data/output", "--fused")
    needed = {"batch_size": "16", "grad_accum_usteps": "32", "fused": ""}
    assert graph_options(trial) == graph_options(training) == needed
    assert graph_options(("large", "--layers", "2", "4")) == {"0": "large", "layers": "2 4"}


# --- How often it saves -----------------------------------------------------------------------------------------------

VOLUME = {"fileSystemId": "fs-1", "dnsName": "fs-1.fsx", "mountName": "m", "capacityGib": 1200, "bucket": ""}
FAST = {**VOLUME, "writeMegabytesPerSecond": 1000}
BERT = Program(module="trainium_workloads.bert.pretrain")
SUM = Program(module="trainium_workloads.gradient_sum")


def _saves(stack=None, **changes):
    """The plan on a group of many nodes, and the checkpoint interval of the job."""
    groups = [{**group("ng1", NEURON, 256, 2), "maxSize": 256}]
    large = {"queues": {"test": {}}, "queueNames": ["test"], "sharedVolume": FAST, **(stack or {})}
    made = _plan(stack=_stack(groups, **large), **changes)
    assert isinstance(made, Submission), made
    return made.saving, environment(made.job).get(CHECKPOINT_SECONDS)


def test_checkpoint_interval_follows_from_gang_and_state_unless_given():
    # Of 256 nodes one fails each day: saving half as often would lose more than it saves.
    (few, told), (many, told_many) = _saves(nodes=2), _saves(nodes=256)
    assert (told, told_many) == ("9960", "4140")
    assert many.useful_fraction < few.useful_fraction
    stack = {"training": {"checkpointGigabytes": 7, "failuresPerNodeYear": 0}}
    runs = [found.run for found, _ in (_saves(), _saves(state_gb=50), _saves(program=BERT), _saves(stack))]
    # GB, at 1 GB/s; only the library's trainings surely go on meanwhile.
    assert [each.beside_seconds or each.checkpoint_seconds for each in runs] == [100, 50, 4, 7]
    assert [bool(each.beside_seconds) for each in runs] == [False, False, True, False]
    assert math.isinf(runs[-1].seconds_between_faults)
    told = [{CHECKPOINT_SECONDS: "90"}, {CHECKPOINT_SECONDS: "soon"}, {}]
    assert [checkpoint_seconds(env) for env in told] == [90, None, None]
    for stack, changes, told in (
        ({}, {"checkpoint_seconds": 90.5}, "90.5"),
        ({}, {"checkpoint_seconds": 0.0}, "0"),
        ({}, {"variables": {CHECKPOINT_SECONDS: "77"}}, "77"),
        ({}, {"variables": {CHECKPOINT_SECONDS: "77"}, "checkpoint_seconds": 90}, "77"),
        *(({}, {"precompile": True}, None), ({}, {"program": SUM}, None)),
        # No file system, one of a stack of an earlier release, no claim: nothing is known.
        *(({"sharedVolume": None}, {}, None), ({"sharedVolume": VOLUME}, {}, None)),
        ({"namespaces": [{**NAMESPACE, "claim": ""}]}, {}, None),
    ):
        assert _saves(stack, **changes) == (None, told)
