"""From a request to a job, or to all that is wrong with it."""

from dataclasses import replace

import pytest
from cluster_snapshots import EFA, GPU, NEURON, group, outputs
from hypothesis import given
from hypothesis import strategies as st

from trainium_eks.jobs.objects.job import TITAN_MODULE, Program
from trainium_eks.jobs.submit import planning
from trainium_eks.jobs.submit.planning import cache_key, compiler_of, graph_options
from trainium_eks.jobs.submit.requests import Facts, JobRequest
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
NAMESPACE = {
    "name": "training",
    "queues": ["test", "wide"],
    "serviceAccount": "trainer",
    "claim": "fsx-claim",
    "trainingUserId": 1007,
}


def _stack(groups, **more):
    return outputs(nodeGroups=groups, namespaces=[NAMESPACE], **more)


STACK = _stack(
    GROUPS,
    queues={"test": {NEURON: 32, EFA: 32}, "wide": {NEURON: 64}, "theirs": {NEURON: 64}},
    queueNames=["test", "wide", "theirs"],
)


def _plan(request=REQUEST, facts=FACTS, stack=STACK):
    return planning.plan(request, stack, stack.namespaces[0], facts)


def _job(facts=FACTS, stack=STACK, **changes):
    made = _plan(replace(REQUEST, **changes), facts, stack)
    assert made.job is not None, made.problems
    return made.job


def _refused(facts=FACTS, stack=STACK, **changes):
    """The one problem that a request has."""
    made = _plan(replace(REQUEST, **changes), facts, stack)
    assert made.job is None
    [problem] = [each for each in made.problems if each.severity is Severity.REFUSE]
    return problem


def _warned(facts=FACTS, **changes):
    """The one warning of a request that leads to a job, if it has any."""
    made = _plan(replace(REQUEST, **changes), facts)
    assert made.job is not None
    assert all(each.severity is Severity.WARN for each in made.problems)
    [warning] = made.problems or [None]
    return warning


# --- What comes from the stack ----------------------------------------------------------------------------------------


def test_everything_comes_from_the_stack():
    job = _job()
    assert (job.name, job.app, job.namespace, job.queue) == ("train-x7k2f", "train", "training", "test")
    assert (job.nodes, job.ranks_per_node, job.world_size) == (2, 32, 64)
    assert (job.service_account, job.claim, job.user_id, job.image) == ("trainer", "fsx-claim", 1007, IMAGE)
    assert (job.instance.name, job.backend) == ("trn1.32xlarge", "xla")
    assert (job.rendezvous, job.launcher, job.retries, job.grace_seconds) == ("c10d", "torchrun", 50, 300)


def test_a_local_stack_gets_a_small_world_on_the_cpu():
    job = _job(replace(FACTS, is_local=True, image="local/python", image_has_torch=False))
    assert (job.backend, job.launcher, job.world_size, job.grace_seconds) == ("cpu", "gang", 2, 30)
    assert job.resources.devices == {NEURON: 16, EFA: 8}


@pytest.mark.parametrize(
    ("changes", "instance_type", "nodes", "ranks"),
    [
        ({"group": "gpu"}, "p4d.24xlarge", 2, 8),
        ({"instance_type": "trn2.48xlarge"}, "trn2.48xlarge", 2, 64),
        ({"group": "small"}, "trn1.2xlarge", 1, 2),
    ],
)
def test_groups_by_name_and_by_type(changes, instance_type, nodes, ranks):
    job = _job(stack=_stack(GROUPS, queues={"wide": {}}), queue="wide", **changes)
    assert (job.instance.name, job.nodes, job.ranks_per_node) == (instance_type, nodes, ranks)


def test_a_group_of_one_node_trains_on_one():
    assert _job(stack=_stack([{**GROUPS[0], "maxSize": 1}])).nodes == 1


def test_a_type_of_the_config_is_in_the_catalogue():
    types = {"trn9.big": {"like": "trn1.32xlarge"}}
    job = _job(stack=_stack([{**GROUPS[0], "instanceType": "trn9.big"}], instanceTypes=types))
    assert job.instance.name == "trn9.big"


def test_etcd_on_request_at_the_stacks_endpoint():
    stack = _stack(GROUPS, rendezvous="etcd-server.torchx-etcd:2379")
    assert _job(stack=stack).rendezvous == "c10d"
    assert _job(stack=stack, rendezvous="etcd").rendezvous == "etcd-server.torchx-etcd:2379"


def test_a_training_can_be_scraped_and_a_compilation_has_nothing_to_tell():
    assert _job().metrics_port == 9600
    assert _job(replace(FACTS, metrics_port=20123)).metrics_port == 20123
    assert _job(metrics=False).metrics_port == 0
    assert _job(precompile=True, cache_set="bert").metrics_port == 0


def test_the_end_of_the_capacity_block_comes_from_ec2():
    facts = replace(FACTS, capacity_ends={"cr-0123456789abcdef0": "2026-12-01T11:30:00Z"})
    assert _job(facts, group="trn2", nodes=1).capacity_ends == "2026-12-01T11:30:00Z"
    assert _job(facts).capacity_ends == ""


@pytest.mark.parametrize(
    ("program", "app"),
    [
        (Program("src/Train_BERT.py"), "train-bert"),
        (Program(module="trainium_workloads.gradient_sum"), "gradient-sum"),
        (Program(module="trainium_workloads.bert.pretrain"), "bert"),
        (Program(module="team.models.pretrain"), "pretrain"),
        (Program("/opt/1st.py"), "train"),
        (Program("/opt/" + "long" * 20 + ".py"), "long" * 8),
    ],
)
def test_a_job_is_called_after_what_it_runs(program, app):
    assert _job(program=program).app == app


# --- TorchTitan -------------------------------------------------------------------------------------------------------

ASSETS = ("--hf_assets_path", "/data/models/Qwen3-8B")


def _titan(**changes):
    return {"program": Program(module=TITAN_MODULE, arguments=ASSETS), "group": "trn2", "nodes": 1, **changes}


@pytest.mark.parametrize(
    ("group", "titan", "module", "ranks"),
    [
        ("trn2", "qwen3_8b_tp4_fsdp16_sac", "torchtitan_neuron.models.qwen3", 64),
        ("gpu", "deepseek_v3_16b", "deepseek_v3", 8),
        ("gpu", "team.models:qwen35_9b", "team.models", 8),
    ],
)
def test_torchtitan_gets_its_config_its_folder_and_a_rank_for_each_device(group, titan, module, ranks):
    job = _job(**_titan(group=group, titan=titan))
    config = titan.rpartition(":")[2]
    assert (job.name, job.program.module) == (f"{config.replace('_', '-')}-x7k2f", "torchtitan.train")
    ours = ("--module", module, "--config", config, "--dump_folder", f"/data/output/{job.name}", "--checkpoint.enable")
    assert job.program.arguments == (*ours, *ASSETS), "the researcher's last: the last one given counts"
    assert (job.ranks_per_node, job.launcher, job.metrics_port) == (ranks, "torchrun", 0)


def test_torchtitan_without_a_volume_saves_nothing():
    stack = outputs(nodeGroups=GROUPS, namespaces=[{**NAMESPACE, "claim": ""}])
    assert _job(stack=stack, **_titan(titan="qwen3_8b")).program.arguments[4:] == ASSETS


def test_torchtitan_without_a_tokenizer_on_the_volume_is_warned_of():
    warning = _warned(**_titan(titan="qwen3_8b", program=Program(module=TITAN_MODULE)))
    assert warning.path == "--titan"
    joined = Program(module=TITAN_MODULE, arguments=("--hf-assets-path=/data/models/x",))
    assert _warned(**_titan(titan="qwen3_8b", program=joined)) is None


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"titan": "qwen35_9b"}, "--titan", "name it: --titan MODULE:qwen35_9b"),
        ({"titan": "qwen3-8b"}, "--titan", "the name of a config function"),
        ({"titan": "a-b:c"}, "--titan", "the name of a config function"),
        ({"group": "ng1"}, "--titan", "trn1.32xlarge has PyTorch/XLA alone"),
        ({"group": "ng1", "backend": "neuron"}, "--titan", "trn1.32xlarge has PyTorch/XLA alone"),
        ({"backend": "xla"}, "--titan", "needs TorchNeuron or CUDA"),
        ({"backend": "cpu"}, "--titan", "on accelerators alone"),
        ({"script": "train.py"}, "--script", "leave one of them out"),
        ({"module": "m"}, "--module", "leave one of them out"),
        ({"example": "bert"}, "--example", "leave one of them out"),
        ({"precompile": True}, "--precompile", "compiles while TorchTitan trains"),
        ({"cache_set": "qwen"}, "--cache-set", "compiles while TorchTitan trains"),
        ({"precision": "fp32"}, "--precision", "--training.mixed_precision_param float32"),
        ({"checkpoint_seconds": 600.0}, "--checkpoint-seconds", "--checkpoint.interval STEPS"),
        ({"state_gb": 10.0}, "--state-gb", "--checkpoint.interval STEPS"),
    ],
)
def test_combinations_that_torchtitan_cannot_run(changes, path, words):
    problem = _refused(**_titan(**{"titan": "qwen3_8b", **changes}))
    assert problem.path == path
    assert words in f"{problem.reason}; {problem.fix}"


# --- What is refused, each with what mends it -------------------------------------------------------------------------


def test_an_unknown_queue_and_another_teams():
    problem = _refused(queue="tset")
    assert (problem.path, problem.reason, problem.good) == ("--queue", "no queue has this name", "test")
    assert problem.allowed == ("test", "wide")
    assert "may not use this queue" in _refused(queue="theirs").reason


def test_a_queue_that_cannot_hold_the_gang():
    problem = _refused(nodes=3)
    assert problem.path == "--nodes"
    assert problem.reason.startswith(f"queue test may use 32 {NEURON}, and 3 nodes of trn1.32xlarge have 48")
    assert problem.good == 2
    assert "wide" in problem.fix
    assert _job(nodes=3, queue="wide").nodes == 3


def test_more_nodes_than_the_group_has():
    problem = _refused(nodes=9, queue="wide", stack=_stack(GROUPS, queues={}))
    assert (problem.reason, problem.good) == ("ng1 has at most 4 nodes", 4)
    assert "`maxSize` of ng1" in problem.fix


@pytest.mark.parametrize(("ranks", "good"), [(3, 2), (16, 8), (31, 32), (64, 32), (0, 1)])
def test_ranks_that_do_not_fit_the_cores(ranks, good):
    problem = _refused(ranks_per_node=ranks)
    assert (problem.path, problem.good) == ("--ranks-per-node", good)


def test_more_ranks_than_gpus():
    problem = _refused(group="gpu", ranks_per_node=9)
    assert problem.reason == "a p4d.24xlarge has 8 GPUs, and takes one rank for each"


def test_part_of_a_node_in_a_gang_is_warned_of():
    warning = _warned(ranks_per_node=8)
    assert warning.good == 32
    assert _warned(ranks_per_node=8, nodes=1) is None


def test_types_that_do_not_train_together_or_at_all():
    problem = _refused(group="small", nodes=2)
    assert problem.reason == "trn1.2xlarge has no EFA, without which its nodes cannot train together"
    assert problem.good == 1
    assert "trn1.32xlarge" in problem.fix
    assert "for inference" in _refused(group="inf", nodes=1).reason


@pytest.mark.parametrize(
    ("changes", "path", "good"),
    [
        ({"group": "gn1"}, "--group", "ng1"),
        ({"instance_type": "trn2.48xl"}, "--instance-type", "trn2.48xlarge"),
        ({"group": "ng1", "instance_type": "trn2.48xlarge"}, "--instance-type", "trn1.32xlarge"),
        ({"group": "gpu", "precompile": True}, "--precompile", None),
        ({"priority": "training-hi"}, "--priority", "training-high"),
        ({"precision": "bf61"}, "--precision", "bf16"),
        ({"precision": "fp8", "backend": "neuron"}, "--precision", "bf16"),
        ({"precision": "fp16", "backend": "cpu"}, "--precision", "bf16"),
        ({"precision": "fp8", "backend": "cuda"}, "--precision", "bf16"),
        ({"rendezvous": "etcd"}, "--rendezvous", "c10d"),
        ({"retries": 0}, "--retries", 1),
        ({"max_restarts": -1}, "--max-restarts", 0),
        ({"failed_starts": "3,1"}, "--failed-starts", "3:1,2"),
        ({"grace": 0}, "--grace", 1),
        ({"nodes": 0}, "--nodes", 1),
        ({"topology": "soft", "tier": 0}, "--tier", 1),
        ({"topology": "hard", "kind": "pytorchjob"}, "--topology", None),
        ({"data": ("/data/bert/",)}, "--data", "bert"),
        ({"data": ("../x",)}, "--data", None),
        ({"ranks_per_node": 10**9, "backend": "cpu"}, "--ranks-per-node", 1),
        ({"name": "My_Job"}, "--name", "my-job"),
        ({"name": "a" * 60}, "--name", "a" * 49),
        ({"cache_set": "bert large"}, "--cache-set", "bert-large"),
    ],
)
def test_settings_that_cannot_be(changes, path, good):
    problem = _refused(**changes)
    assert (problem.path, problem.good) == (path, good)


def test_names_that_are_taken():
    problem = _refused(replace(FACTS, jobs={"bert": "Running"}), name="bert")
    assert (problem.reason, problem.good) == ("there is a job of this name (Running)", "bert-x7k2f")
    assert "trn cancel bert" in problem.fix


def test_what_the_cluster_and_whoever_looked_for_the_image_say():
    problem = _refused(replace(FACTS, may_submit=False))
    assert "may not submit Volcano jobs in the namespace training" in problem.reason
    assert "principals" in problem.fix
    missing = Problem("--image", "there is no such image on this machine", "make it")
    assert _refused(replace(FACTS, image_missing=missing)) is missing
    bringing = replace(FACTS, staging={"bert/train": "stage-bert"})
    assert _refused(bringing, data=("bert/train",)).reason == "stage-bert is still bringing it"
    assert _refused(replace(FACTS, is_local=True), backend="xla").good == "cpu"


def test_a_compile_cache_in_use():
    key = cache_key("bert", 64, "bf16", "sdk2.30.0")
    facts = replace(FACTS, compiling={key: "bert-compile"})
    for precompile in (False, True):
        problem = _refused(facts, cache_set="bert", precompile=precompile)
        assert problem.reason == f"the job bert-compile is filling the compile cache {key}"
        assert "trn status bert-compile" in problem.fix
    assert _job(facts, cache_set="other").cache is not None


def test_no_volume_no_data_and_no_compile_cache():
    stack = outputs(nodeGroups=GROUPS, namespaces=[{**NAMESPACE, "claim": ""}])
    assert _refused(stack=stack, data=("bert",)).path == "--data"
    assert _refused(stack=stack, cache_set="bert").path == "--cache-set"


@pytest.mark.parametrize("program", [Program(), Program("train.py", module="train")])
def test_one_thing_is_run(program):
    assert "one script or module" in _refused(program=program).reason


def test_a_topology_that_volcano_does_not_know_yet_is_warned_of():
    warning = _warned(replace(FACTS, network_layers=0), topology="hard")
    assert warning.path == "--topology"


def test_a_tier_is_one_of_the_networks_layers():
    three = replace(FACTS, network_layers=3)
    assert _refused(three, topology="hard", tier=9).good == 3
    assert _warned(three, topology="hard", tier=3) is None


def test_a_stack_without_groups():
    assert "no node group" in _plan(stack=_stack([])).problems[0].reason


def test_all_at_once():
    wrong = replace(REQUEST, queue="tset", nodes=9, ranks_per_node=5, priority="none", program=Program(), name="A B")
    paths = {each.path for each in _plan(wrong).problems}
    assert paths >= {"--queue", "--nodes", "--ranks-per-node", "--priority", "--script", "--name"}


@given(
    nodes=st.integers(-1, 12),
    ranks=st.integers(-1, 70),
    place=st.sampled_from([each["name"] for each in GROUPS if each["name"] != "inf"]),
    queue=st.sampled_from(["test", "wide", "tets", "theirs"]),
)
def test_doing_what_is_said_mends_it(nodes, ranks, place, queue):
    """Each problem's good value is good: taking them leads to a job."""
    request = replace(REQUEST, nodes=nodes, ranks_per_node=ranks, group=place, queue=queue)
    fields = {"--nodes": "nodes", "--ranks-per-node": "ranks_per_node", "--queue": "queue"}
    for _ in range(3):
        made = _plan(request)
        if made.job is not None:
            return
        refused = [each for each in made.problems if each.severity is Severity.REFUSE]
        request = replace(request, **{fields[each.path]: each.good for each in refused})
    pytest.fail(f"{request}")


# --- Compile caches ---------------------------------------------------------------------------------------------------


def test_a_cache_by_all_that_graphs_depend_on():
    job = _job(cache_set="bert-large", program=Program("t.py", arguments=("--batch_size", "16", "--max_steps=10")))
    assert job.cache is not None
    assert job.cache.key == "bert-large-64x-bf16-sdk2.30.0"
    assert job.cache.options == {"batch_size": "16"}


def test_a_trial_of_few_steps_compiles_what_the_training_needs():
    trial = ("--batch_size", "16", "--grad_accum_usteps", "32", "--steps_this_run", "10", "--fused")
    training = ("--batch_size=16", "--grad-accum-usteps", "32", "--output_dir", "/data/output", "--fused")
    needed = {"batch_size": "16", "grad_accum_usteps": "32", "fused": ""}
    assert graph_options(trial) == graph_options(training) == needed
    assert graph_options(("large", "--layers", "2", "4")) == {"0": "large", "layers": "2 4"}


@pytest.mark.parametrize(
    ("image", "compiler"),
    [
        (IMAGE, "sdk2.30.0"),
        ("repo/train:a1b2c3", "a1b2c3"),
        ("localhost:5000/train", "latest"),
        ("repo/train:v1@sha256:abc", "v1"),
    ],
)
def test_the_compiler_is_read_from_the_images_tag(image, compiler):
    assert compiler_of(image) == compiler


@given(st.text(max_size=30), st.integers(1, 4096), st.sampled_from(["bf16", "fp32"]), st.text(max_size=20))
def test_a_key_is_one_directory(model, world, precision, compiler):
    key = cache_key(f"m{model}", world, precision, compiler)
    assert "/" not in key
    assert key not in (".", "..")
