"""The Volcano job: what it asks for, what its containers run, and that it fits into etcd."""

import copy
import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from training_jobs import job
from waiting import SECONDS

from trainium_eks.jobs.objects import capacity_block, resources, volcano_job
from trainium_eks.jobs.objects.command import ONE_TASK, place_of_task, shell
from trainium_eks.jobs.objects.environment import environment
from trainium_eks.jobs.objects.job import REFUSED, CompileCache, Program, Topology
from trainium_eks.model.catalogue.addon_records import ADDONS
from trainium_eks.model.catalogue.instances import CATALOGUE, EFA_RESOURCE, NEURON_RESOURCE
from trainium_eks.model.sizing.quantities import quantity

ETCD_BYTES = 1_572_864
BEYOND_TORCHX = [
    *(".metadata.namespace", ".metadata.labels", ".metadata.annotations", ".spec.networkTopology", ".affinity"),
    *("trainium-eks/kind", "trainium-eks/metrics", ".terminationGracePeriodSeconds", ".terminationMessagePolicy"),
    *(".securityContext", ".workingDir", ".volumes", ".volumeMounts", ".env", ".initContainers"),
    *(f".resources.requests.{device}" for device in (NEURON_RESOURCE, EFA_RESOURCE)),
]
"""Parts of the paths of all fields that the objects of TorchX 0.7.0 lack; beside them policies for exit codes."""
TRAINING_TYPES = [
    name for name, each in CATALOGUE.items() if each.family != "cpu" and not each.accelerator.startswith("Inferentia")
]


def _paths(value, path=""):
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _paths(each, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for index, each in enumerate(value):
            yield from _paths(each, f"{path}[{index}]")
    else:
        yield path, value


def test_pod_in_a_block_reads_its_end_from_an_optional_config_map():
    made = volcano_job.manifest(job("trn2.48xlarge", capacity_ends="2026-12-01T11:30:00Z", capacity_block="cr-1"))
    spec = _pods(made)[0]["spec"]
    source = {"name": capacity_block.config_map("training", "cr-1", "x")["metadata"]["name"], "optional": True}
    assert {"name": "capacity-block", "configMap": source} in spec["volumes"]
    [mount] = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "capacity-block"]
    assert {"name": "TRN_CAPACITY_FILE", "value": f"{mount['mountPath']}/ends"} in spec["containers"][0]["env"]
    assert made["metadata"]["annotations"]["trainium-eks/capacity-block"] == "cr-1"


def test_pod_of_a_group_with_dates_reads_the_file_that_the_stack_keeps():
    ends = {"capacity_ends": "2026-12-01T11:30:00Z", "capacity_block": "cr-1", "capacity_group": "blocks"}
    made = volcano_job.manifest(job("trn2.48xlarge", **ends))
    spec = _pods(made)[0]["spec"]
    assert {"name": "capacity-block", "configMap": {"name": "capacity-blocks", "optional": True}} in spec["volumes"]
    assert {"name": "TRN_CAPACITY_FILE", "value": "/etc/trn/capacity/blocks"} in spec["containers"][0]["env"]
    assert made["metadata"]["annotations"]["trainium-eks/capacity-block-group"] == "blocks"


def _pods(made):
    return [task["template"] for task in made["spec"]["tasks"]]


# --- Resources --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [2, 500])
@pytest.mark.parametrize("name", TRAINING_TYPES)
def test_a_pod_has_a_whole_node_and_leaves_room_for_daemon_sets(name, nodes):
    """Requests name the devices too: a PodGroup sums up what templates request, before any pod has defaults."""
    devices, allocatable = CATALOGUE.device_resources(name), CATALOGUE.allocatable(name)
    if pages := CATALOGUE.find(name).hugepages_2mi:
        devices = devices | {"hugepages-2Mi": pages * 2 * 2**20}
    for pod in _pods(volcano_job.manifest(job(name, nodes=nodes))):
        asked = pod["spec"]["containers"][0]["resources"]
        left = {"cpu": resources.SYSTEM_MILLICPU / 1000, "memory": resources.SYSTEM_MEMORY_MIB * 2**20}
        for resource, slack in (("cpu", 1), ("memory", 1e9)):
            spare = float(quantity(allocatable[resource])) - left[resource]
            spare -= float(quantity(asked["requests"][resource]))
            assert 0 <= spare < slack
        wanted = {resource: str(count) for resource, count in devices.items()}
        assert asked["limits"].items() >= wanted.items(), "extended resources and huge pages take no other limit"
        assert asked["requests"] == {**wanted, "cpu": asked["requests"]["cpu"], "memory": asked["requests"]["memory"]}
        [volume] = [each for each in pod["spec"]["volumes"] if each["name"] == "dshm"]
        memory = resources.whole_node(CATALOGUE.find(name)).memory_mb - resources.RESERVED_MEMORY_MB
        assert 0 < float(quantity(volume["emptyDir"]["sizeLimit"])) <= memory * 10**6 / 2
    instance = CATALOGUE.find(name)
    places = ("all", instance.family, "efa" if instance.has_efa else "")
    workloads = [each for addon in ADDONS.values() for each in addon.workloads if each.nodes in places]
    pods = [each.pod for each in workloads if each.kind == "DaemonSet"]
    # Device and EFA plugins, and the monitor, of the charts.
    charts_millicpu, charts_memory_mib = 250, 512
    assert pods
    assert sum(pod.millicpu for pod in pods) + charts_millicpu <= resources.SYSTEM_MILLICPU
    assert sum(pod.memory_mib for pod in pods) + charts_memory_mib <= resources.SYSTEM_MEMORY_MIB


# --- The two shapes ---------------------------------------------------------------------------------------------------


def test_volcano_job_extends_torchxs_object_without_changing_it():
    """Every field of TorchX's object is as TorchX has it; what is added is on the list."""
    wanted = job(
        has_workspace=True, user_id=1000, topology=Topology("hard", 1, 2), capacity_ends="2026-12-01T11:30:00Z"
    )
    made, base = volcano_job.manifest(wanted), volcano_job.torchx_job(wanted)
    with_policies = copy.deepcopy(made)
    for task in with_policies["spec"]["tasks"]:
        assert task["policies"].pop(0) == {"exitCode": REFUSED, "action": "TerminateJob"}
    ours, theirs = dict(_paths(with_policies)), dict(_paths(base))
    changed = {path for path, value in theirs.items() if ours.get(path) != value}
    assert {path.rpartition("].")[2] for path in changed} == {"securityContext"}, "was empty"
    assert [path for path in ours if path not in theirs and not any(part in path for part in BEYOND_TORCHX)] == []
    [task] = volcano_job.manifest(replace(wanted, nodes=4))["spec"]["tasks"]
    assert task["partitionPolicy"]["networkTopology"] == {"mode": "hard", "highestTierAllowed": 1}
    counts = [task["partitionPolicy"][name] for name in ("totalPartitions", "minPartitions", "partitionSize")]
    assert [task["replicas"], *counts] == [4, 2, 2, 2]


def test_ultraserver_pods_ask_for_numbered_nodes_and_places():
    us = {"instance_type": "trn2u.48xlarge", "nodes": 4, "capacity_ends": END}
    made = volcano_job.manifest(job(**us, topology=Topology("hard", 2, 4)))
    terms = [pod["spec"]["affinity"]["nodeAffinity"].popitem()[1]["nodeSelectorTerms"] for pod in _pods(made)]
    label = "neuron.amazonaws.com/ultraserver-node-id-4"
    assert terms == [
        [{"matchExpressions": [{"key": label, "operator": "In", "values": [str(number)]}]}] for number in range(4)
    ]
    assert made["spec"]["networkTopology"]["highestTierAllowed"] == 2
    [script] = {pod["spec"]["containers"][0]["command"][2] for pod in _pods(made)[2:3]}
    assert "--node_config 4" in script
    assert "--rdzv_backend" not in script, "torchrun's static rendezvous, by the launcher's variables"
    assert 'find_spec("trainium_workloads.ultraserver")' in _pods(made)[0]["spec"]["containers"][0]["command"][2]
    assert {"name": "TRN_CAPACITY_MARGIN", "value": "4200"} in _pods(made)[0]["spec"]["containers"][0]["env"]
    for other, config in (({}, "--node_config 1"), ({"instance_type": "trn2.48xlarge"}, "")):
        text = json.dumps(volcano_job.manifest(job(**{**us, **other})))
        assert ("--node_config" in text, config in text, "rdzv_backend c10d" in text) == (bool(config), True, True)


@pytest.mark.parametrize(("nodes", "tasks"), [(1, 1), (2, 2), (64, 64), (256, 1), (1000, 1)])
@pytest.mark.parametrize("variables", [0, 20])
def test_gang_of_any_size_fits_into_etcd(nodes, tasks, variables):
    env = {f"VARIABLE_{n}": "x" * 100 for n in range(variables)}
    made = volcano_job.manifest(job(nodes=nodes, name="a" * 49, has_workspace=True, env=env))
    # Defaults and owners of fields, which the API server adds, are at most as large again.
    assert len(json.dumps(made)) < ETCD_BYTES / 2
    assert sum(task["replicas"] for task in made["spec"]["tasks"]) == nodes
    assert variables or len(made["spec"]["tasks"]) == tasks


def test_both_job_shapes_have_the_same_pod_and_a_local_one_only_devices():
    first, one = _pods(volcano_job.torchx_job(job()))[1], _pods(volcano_job.one_task_job(job()))[0]
    for pod in (first, one):
        pod["spec"]["containers"][0].pop("command")
        pod["spec"]["containers"][0].pop("name")
        pod["metadata"]["labels"].pop("torchx.pytorch.org/replica-id", None)
    assert first == one
    known, unknown = (_pods(volcano_job.manifest(job(user_id=each)))[0]["spec"] for each in (1007, None))
    assert known["securityContext"]["runAsUser"] == known["securityContext"]["runAsGroup"] == 1007
    assert "runAsUser" not in unknown["securityContext"]
    share = resources.local_share(CATALOGUE.find("p5.48xlarge"))
    assert (dict(share.devices), share.cpu, share.memory_mb) == (CATALOGUE.device_resources("p5.48xlarge"), 1, 3072)


# --- Faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [2, 500])
def test_lost_pod_restarts_the_gang_and_a_refusal_ends_it(nodes):
    made = volcano_job.manifest(job(nodes=nodes, retries=7, grace_seconds=120, capacity_ends=END))
    assert made["metadata"]["annotations"]["trainium-eks/capacity-block-ends"] == END
    assert made["spec"]["maxRetry"] == 7
    for task in made["spec"]["tasks"]:
        assert task["maxRetry"] == 7
        assert task["policies"] == [
            {"exitCode": REFUSED, "action": "TerminateJob"},
            {"event": "PodEvicted", "action": "RestartJob"},
            {"event": "PodFailed", "action": "RestartJob"},
        ]
        assert task["template"]["spec"]["terminationGracePeriodSeconds"] == 120
        assert task["template"]["spec"]["restartPolicy"] == "Never"


# --- Environment ------------------------------------------------------------------------------------------------------


END = "2026-12-01T11:30:00Z"
TRN1, TRN2 = "trn1.32xlarge", "trn2.48xlarge"
CACHE, CACHE_AT = CompileCache("bert-64x-bf16"), "/data/compile-cache/bert-64x-bf16"
XLA_CACHE, NEURON_CACHE = "NEURON_COMPILE_CACHE_URL", "TORCH_NEURONX_NEFF_CACHE_DIR"
ROUNDING, SHUTDOWN = "NEURON_RT_STOCHASTIC_ROUNDING_EN", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
CUDA = {"NCCL_SOCKET_IFNAME": "^lo", "FI_PROVIDER": "efa"}


def test_environment_follows_from_the_accelerator_and_the_options():
    for name, changes, has, has_not in (
        (TRN1, {}, {"PJRT_DEVICE": "NEURON", "FI_PROVIDER": "efa", ROUNDING: "1"}, {XLA_CACHE, "TRN_CAPACITY_ENDS"}),
        (TRN1, {}, {"PYTHONUNBUFFERED": "1"}, {"NCCL_SOCKET_IFNAME", "XLA_DOWNCAST_BF16", "FI_EFA_FORK_SAFE"}),
        ("trn1.2xlarge", {}, {"PJRT_DEVICE": "NEURON"}, {"FI_PROVIDER"}),
        (TRN2, {}, {"CCOM_SOCKET_IFNAME": "eth0", "TRN_BACKEND": "neuron"}, {"PJRT_DEVICE"}),
        ("p5.48xlarge", {}, CUDA, {"PJRT_DEVICE", "MALLOC_ARENA_MAX"}),
        (TRN1, {"env": {"OMP_NUM_THREADS": "8"}}, {"OMP_NUM_THREADS": "8"}, {NEURON_CACHE}),
        (TRN1, {"precision": "fp32"}, {"PJRT_DEVICE": "NEURON"}, {ROUNDING}),
        # torchrun ends its ranks before the kubelet does.
        (TRN1, {"grace_seconds": 120}, {SHUTDOWN: "110"}, {NEURON_CACHE}),
        (TRN1, {"grace_seconds": 3}, {SHUTDOWN: "1"}, {NEURON_CACHE}),
        (TRN1, {"capacity_ends": END}, {"TRN_CAPACITY_ENDS": END}, {NEURON_CACHE}),
        (TRN1, {"cache": CACHE}, {XLA_CACHE: CACHE_AT}, {NEURON_CACHE}),
        (TRN2, {"cache": CACHE}, {NEURON_CACHE: CACHE_AT}, {XLA_CACHE}),
        # Without a name for its cache a job of TorchNeuron shares the team's directory.
        (TRN2, {}, {NEURON_CACHE: "/data/neff-cache"}, {XLA_CACHE}),
        (TRN2, {"claim": ""}, {"TRN_BACKEND": "neuron"}, {NEURON_CACHE, XLA_CACHE, "NEURON_RT_ULTRASERVER_MODE"}),
        ("trn2u.48xlarge", {}, {"NEURON_RT_ULTRASERVER_MODE": "4"}, {"TRN_CAPACITY_MARGIN"}),
    ):
        found = environment(job(name, **changes))
        assert has.items() <= found.items()
        assert not has_not & found.keys()


@pytest.mark.parametrize(("nodes", "scraped"), [(1, [True]), (3, [True, False, False]), (500, [True])])
def test_the_pod_of_rank_0_is_found_by_its_label(nodes, scraped):
    pods = _pods(volcano_job.manifest(job(nodes=nodes)))
    assert ["trainium-eks/metrics" in pod["metadata"]["labels"] for pod in pods] == scraped
    for pod in pods:
        container = pod["spec"]["containers"][0]
        assert container["ports"][1] == {"containerPort": 9600, "name": "trn-metrics"}
        assert {"name": "TRN_METRICS_PORT", "value": "9600"} in container["env"]
    assert "metrics" not in json.dumps(volcano_job.manifest(job(nodes=nodes, metrics_port=0))).lower()


# --- Command: the script runs in a real shell, with stand-ins for the programs that it becomes ------------------------

_STAND_INS = (
    'torchrun() { printf "torchrun"; printf " <%s>" "$@"; echo; }\n'
    'neuron_parallel_compile() { printf "npc "; "$@"; }\n'
    'python3() { if [ "$1" = -c ]; then return $HAS_WORKLOADS; fi; printf "python3"; printf " <%s>" "$@"; echo; '
    "return ${CHECK:-0}; }\n"
)


def _bash(script, **env):
    env = {"PATH": "/usr/bin:/bin", "TORCHX_RANK0_HOST": "localhost", **env}
    env = {name: value for name, value in env.items() if value}
    return subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=SECONDS, check=False)


def _run(wanted, node, *, one_task=False, **env):
    hosts = {"VC_TRAINER_HOSTS": "j-trainer-0.j,j-trainer-1.j", "VC_TASK_INDEX": str(node)}
    if not one_task:
        hosts = {"VC_TRAINER_0_HOSTS": "j-trainer-0-0.j", "TORCHX_RANK0_HOST": "" if node else "localhost"}
    script = shell(wanted, ONE_TASK if one_task else place_of_task(node))
    return _bash(_STAND_INS + script, **{"HAS_WORKLOADS": "0", **hosts, **env})


def _module(**changes):
    return job(**{"program": Program(module="m", arguments=("--note", "it's $5")), **changes})


@pytest.mark.parametrize("one_task", [False, True])
@pytest.mark.parametrize("node", [0, 1])
def test_nodes_rendezvous_at_node_0(node, one_task):
    result, host = _run(_module(), node, one_task=one_task), "j-trainer-0.j" if one_task else "j-trainer-0-0.j"
    assert result.returncode == 0
    at = f"<--rdzv_endpoint> <{host if node else 'localhost'}:29500>"
    for words in (at, "<--nnodes> <2> <--nproc_per_node> <32>", "<-m> <m> <--note> <it's $5>"):
        assert words in result.stdout


@pytest.mark.parametrize("one_task", [False, True])
@pytest.mark.parametrize("launcher", ["torchrun", "gang"])
def test_launcher_of_each_node_records_the_first_failure(launcher, one_task):
    wanted = _module(launcher=launcher, failed_starts="5:1", max_restarts=2)
    host, port = ("j-trainer-0.j" if one_task else "j-trainer-0-0.j"), 29499 if launcher == "torchrun" else 29500
    told = f"<--stay> <60> <--failed_starts> <5:1> <--record> <{wanted.output}/.failed"
    for node in range(2):
        said = _run(wanted, node, one_task=one_task).stdout
        assert f"python3 <-m> <trainium_workloads.gang> <--rdzv_endpoint> <{host}:{port}> <--rdzv_id>" in said
        assert f"<--node_rank> <{node}> {told}" in said
        assert ("<--in_place> <2> <--launcher> <torchrun>" in said) is (launcher == "torchrun")


@pytest.mark.parametrize(("node", "code", "stays"), [(0, 5, False), (1, 5, True), (1, 0, False)])
def test_image_without_the_launcher_keeps_its_other_nodes_waiting(node, code, stays):
    """Volcano would end a job of which all pods have failed before it handles the first failure."""
    stand_ins = f"torchrun() {{ return {code}; }}\npython3() {{ return 1; }}\nsleep() {{ echo stays $1; }}\n"
    ran = _bash(stand_ins + shell(_module(), place_of_task(node)), VC_TRAINER_0_HOSTS="h")
    assert (ran.returncode, ran.stdout) == (code, "stays 15\n" if stays else "")


CACHED = {"cache": CompileCache("k", {"batch": "16"})}
CHECK = '<check> <--root> </data/compile-cache> <--key> <k> <--options> <{"batch": "16"}>'
ETCD = "<--rdzv_backend> <etcd-v2> <--rdzv_endpoint> <etcd:2379> <--rdzv_id> <bert-x7k2f-4>"
NO_SET = "no/such 'set is not on the shared volume; bring it: trn stage"
SCRIPT, NO_SCRIPT = {"program": Program("train.py")}, "there is no script train.py in repo/train:1\n"


@pytest.mark.parametrize(
    ("changes", "node", "env", "code", "said"),
    [
        ({"nodes": 1}, 0, {}, 0, "<--rdzv_endpoint> <localhost:0>"),
        ({"rendezvous": "etcd:2379"}, 1, {"TRN_ATTEMPT": "4"}, 0, ETCD),
        ({}, 1, {"VC_TRAINER_0_HOSTS": ""}, 127, "is set by the svc plugin"),
        (SCRIPT, 0, {}, REFUSED, NO_SCRIPT),
        ({"data": ("no/such 'set",)}, 0, {}, REFUSED, NO_SET),
        # A training waits for a whole cache where the image can look.
        (CACHED, 0, {}, 0, CHECK),
        (CACHED, 0, {"CHECK": "3"}, REFUSED, CHECK),
        (CACHED, 0, {"HAS_WORKLOADS": "1"}, 0, "torchrun"),
        # Node 0 finds out for all: the pod of another would end the job first, and node 0's words would go with it.
        ({**CACHED, "data": ("none",)}, 0, {"CHECK": "3"}, REFUSED, "none is not on the shared volume"),
        ({**CACHED, "data": ("none",)}, 1, {"CHECK": "3"}, 3, "<torchrun>"),
    ],
)
@pytest.mark.parametrize("one_task", [False, True])
def test_invalid_setting_ends_the_job_before_torchrun_starts(changes, node, env, code, said, one_task):
    if one_task and "VC_TRAINER_0_HOSTS" in env:
        env = {"VC_TRAINER_HOSTS": ""}
    ran = _run(_module(**changes), node, one_task=one_task, **env)
    assert ran.returncode == code
    assert said in ran.stdout + ran.stderr
    if code == REFUSED and not env:
        assert (ran.stdout, ran.stderr.startswith(said), ran.stderr.count("\n")) == ("", True, 1)
    assert ("torchrun" in ran.stdout) is (code in (0, 3))


@pytest.mark.parametrize(
    ("program", "packages", "said"),
    [("m", [], ""), ("m", ["torch_xla"], "repo/train:1 has torch_xla, which libraries prefer to TorchNeuron")],
)
def test_packages_are_checked_before_the_launch(tmp_path, program, packages, said):
    script = shell(job("trn2.48xlarge", program=Program(module=program)), place_of_task(0))
    for name in packages:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('imported, which takes seconds')")
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(tmp_path)}
    ran = _bash(f"torchrun() {{ echo launched; }}\n{script}", **env)
    assert (ran.returncode, ran.stdout) == ((REFUSED, "") if said else (0, "launched\n"))
    assert ran.stderr.startswith(said)
    assert said or not ran.stderr


def test_node_0_compiles_with_the_lease_and_the_others_join_it():
    wanted = _module(kind="compile", cache=CompileCache("k"))
    for node, part in enumerate(("run", "join")):
        said = _run(wanted, node).stdout
        assert f"<{part}> <--root> </data/compile-cache> <--key> <k>" in said
        assert f"<--job> <{wanted.name}> <--> <neuron_parallel_compile> <torchrun>" in said
        assert "npc" not in said
    assert _run(wanted, 1, HAS_WORKLOADS="1").stdout.startswith("npc torchrun")
    assert "<--launcher> <torchrun>" in _run(_module(kind="compile", backend="cpu"), 1).stdout


@pytest.mark.parametrize(("handles", "code", "said"), [(True, 9, "saving\nsaved\n"), (False, 143, "")])
def test_sigterm_reaches_the_launcher_and_its_exit_code_is_the_jobs(tmp_path, handles, code, said):
    trap = "trap 'echo saving; sleep 0.3; echo saved; exit 9' TERM\n" if handles else ""
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(f"#!/bin/sh\n{trap}echo started\nexec </dev/null\nwhile :; do sleep 0.05; done\n")
    torchrun.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TORCHX_RANK0_HOST": "localhost"}
    command = ["bash", "-c", shell(_module(), place_of_task(0))]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == said
        assert process.wait(SECONDS) == code


def test_sigterm_reaches_a_launcher_that_has_just_started(tmp_path):
    """It comes when the shell has started the launcher, and before its next command."""
    torchrun, begun = tmp_path / "torchrun", tmp_path / "begun"
    torchrun.write_text(f"#!/bin/sh\ntrap 'exit 9' TERM\n: > {begun}\nwhile :; do sleep 0.05; done\n")
    torchrun.chmod(0o755)
    start, rest = shell(_module(), place_of_task(0)).split(" &\n")
    script = f"{start} &\nuntil [ -e {begun} ]; do sleep 0.01; done; kill -TERM $$\n{rest}"
    assert _bash(script, PATH=f"{tmp_path}:/usr/bin:/bin").returncode == 9
