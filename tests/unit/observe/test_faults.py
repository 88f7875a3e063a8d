"""The catalogue of faults: each entry can be found, is complete, and names commands that exist."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

from trainium_eks.cli.app import app
from trainium_eks.observe import rules
from trainium_eks.observe.alerts import runbook
from trainium_eks.observe.faults import catalogue
from trainium_eks.observe.faults.catalogue import BY_NAME, FAULTS
from trainium_eks.observe.faults.fault import Fault, Speaker

ROOT = Path(runbook.__file__).parents[2]
COMMANDS: Mapping[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
CODE = "".join(file.read_text() for room in ("jobs", "operate") for file in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_an_entry_can_be_found_and_says_everything(fault: Fault) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+", fault.name)
    assert BY_NAME[fault.name] is fault
    assert fault.says or f'"{fault.name}"' in CODE, "no recognizer names it"
    assert all((fault.symptom.endswith("."), fault.cause.endswith("."), fault.remedy, fault.source))
    assert not fault.alert or f"- **{fault.name}**: {fault.symptom} Remedy: {fault.mend()}" in runbook.page(fault.alert)
    assert [name for name in re.findall(r"\btrn ([a-z]+)", fault.remedy) if name not in COMMANDS] == []
    pages = re.findall(r"docs/[\w-]+\.md", f"{fault.remedy} {fault.source}")
    assert [page for page in pages if not (ROOT.parent / page).is_file()] == []


def test_a_name_without_a_value_stands_in_capitals_and_words_as_the_catalogue_has_them() -> None:
    fault = BY_NAME["node-cordoned"]
    assert fault.mend(node="n1").endswith("kubectl uncordon n1")
    assert fault.mend().endswith("kubectl uncordon NODE")
    fault = BY_NAME["topology-busy"]
    assert fault.mend(wait="", looser="--tier 2") == "wait for those, or submit it with --tier 2"
    assert fault.mend() == "wait for those, or submit it with --topology soft"


def test_capitals_in_a_page_are_names_of_objects_and_keys_and_options_exist() -> None:
    """Placeholders for words, as "LOOK", would tell a reader nothing."""
    names = "AMOUNT CLAIM CLASS CLUSTER GROUP HYPERNODES IMAGE INSTANCE JOB KIND NAMESPACE NODE NODES POD"
    names += " PROCESS QUEUE QUEUES REGION RESOURCES STACK TAINT WEBHOOK"
    found = {each for fault in FAULTS for each in re.findall(r"\{(\w+)\}", fault.remedy)}
    assert found == {each.lower() for each in names.split()}
    assert all(" " in re.sub(r"\{\w+\}", "", fault.remedy).strip() for fault in FAULTS)
    assert {fault.alert for fault in FAULTS} - {""} <= rules.severities().keys()
    known = (ROOT.parent / "docs" / "config.md").read_text()
    keys = re.findall(r"`([a-z]+[A-Z]\w+|[a-z]+(?:\.\w+)+)`", " ".join(fault.remedy for fault in FAULTS))
    assert [key for key in keys if key not in known and key != "subPath"] == []
    options = {name for parameter in COMMANDS["train"].params for name in parameter.opts}
    assert {"--image", "--topology", "--env", "--hf-secret", "--ranks-per-node", "--name"} <= options


LINES = {
    "2026-Nov-22 05:30:04.1 ERROR NRT:nrt_init Unable to determine Neuron Driver version.": "neuron-driver-missing",
    "ERROR TDRV:tdrv_get_dev_info No neuron device available": "neuron-devices-absent",
    "ERROR NRT:nrt_allocate_neuron_cores NeuronCore(s) not available - Requested:32": "neuron-devices-taken",
    "RuntimeError: Bad StatusOr access: INTERNAL: status_code=1200 NRT_EXEC_HW_ERR_HBM_UE": "neuron-hardware-error",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": "device-memory-full",
    "RuntimeError: Found no NVIDIA driver on your system.": "gpu-not-visible",
    "subprocess.CalledProcessError: neuronx-cc compile failed with exit code 70": "compilation-failed",
    "NET/OFI No eligible providers were found": "efa-not-used",
    "ncclSystemError: System call failed: unhandled system error, NCCL version 2.21": "collective-system-error",
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)": "collective-timed-out",
    "socket.gaierror: [Errno -2] Name or service not known": "name-not-resolved",
    "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms": "rendezvous-timed-out",
    "1 of 2 nodes came within 1800 s": "rendezvous-timed-out",
    "RuntimeError: worker is killed by signal: Bus error. insufficient shared memory (shm)": "shared-memory-full",
    "OSError: [Errno 28] No space left on device: '/data/output/x'": "volume-full",
    "PermissionError: [Errno 13] Permission denied: '/data/output'": "volume-not-writable",
    "ValueError: /data/wikicorpus holds no file for rank 1": "data-missing",
    "huggingface_hub.errors.GatedRepoError: 403 Client Error.": "model-access-refused",
    "ModuleNotFoundError: No module named 'peft'": "module-missing",
    "compile cache k is being compiled by a (host, process 7)": "compile-cache-held",
    "OSError: [Errno 8] Exec format error: '/app/run'": "image-architecture",
    # As they stand in public reports, shortened.
    "RuntimeError: NCCL error: remote process exited or there was a network error, NCCL version 2.27.3": "peer-ended",
    "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.1.2]:22947": "peer-ended",
    "NCCL WARN NET/OFI Request completed with error. RC: 21. Error: unknown error": "peer-ended",
    "[F134] neuronx-cc terminated abnormally - Please open a support ticket": "compilation-failed",
    "[F137] neuronx-cc was forcibly killed - most commonly insufficient system memory": "compilation-failed",
    "ERROR  TDRV:dmem_alloc_internal  Failed to alloc DEVICE memory: 180355072": "device-memory-full",
    "RuntimeError: INTERNAL: Nrt::Load failed on NeuronCores 0-0(2): nrt_load status=1": "device-program-failed",
    "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://h": "rate-limited",
    "RuntimeError: Dataset scripts are no longer supported, but found superb.py": "code-refused",
    "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded": "code-refused",
    "RuntimeError: DataLoader worker (pid 1) is killed by signal: Bus error. shared memory": "shared-memory-full",
    "RuntimeError: DataLoader worker (pid 42) is killed by signal: Killed.": "out-of-memory",
    "KeyError: 'lm_head.weight'": "file-unusable",
    "NCCL WARN NET/OFI Unable to register memory (type = 2). RC: -12, Error: Cannot": "collective-system-error",
    "libfabric:57:efa:mr:efa_mr_reg_impl()<warn> Unable to register MR: Cannot allocate": "collective-system-error",
    "NCCL WARN NET/OFI Creating new endpoint for domain 0x7f9 failed: Invalid argument": "efa-not-used",
    # As the programs write them.
    "  traceback : Signal 9 (SIGKILL) received by PID 57": "out-of-memory",
    "  traceback : Signal 11 (SIGSEGV) received by PID 57": "program-crashed",
    "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject": "rate-limited",
    "botocore.exceptions.ClientError: An error occurred (ExpiredToken) when calling the GetObject": "aws-refused",
    "An error occurred (NoSuchKey) when calling the GetObject operation": "data-missing",
    "huggingface_hub.errors.HfHubHTTPError: 403 Forbidden: enable access to public gated": "model-access-refused",
    "datasets.exceptions.DatasetNotFoundError: Dataset 'a/b' doesn't exist on the Hub": "model-missing",
    "huggingface_hub.errors.LocalEntryNotFoundError: cannot find it in the local cache": "service-unreachable",
    "OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/data/tokens.bin'": "file-system-lost",
    "OSError: [Errno 24] Too many open files": "process-limit",
    "The server socket has failed to listen. port: 29500, code: -98, name: EADDRINUSE": "port-in-use",
    "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered": "accelerator-unhealthy",
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered": "device-program-failed",
    "/opt/x: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found": "library-mismatch",
    "ValueError: loss is nan at step 120": "loss-not-finite",
    "train.py: error: unrecognized arguments: --stepz 5": "script-wrong",
}


@pytest.mark.parametrize(("line", "fault"), LINES.items(), ids=LINES.values())
def test_a_line_of_a_log_names_its_fault(line: str, fault: str) -> None:
    found = catalogue.in_log(["loading data", line, "local rank 0 failed: exit code 1"])
    assert found is not None
    assert (found[0].name, found[1]) == (fault, line)


SOUND = """[default0]:{"step": 12, "time": 1795348799.0, "steps": 20000, "loss": 0.25, "checkpoint_step": 10}
[W1126 12:00:00.1 socket.cpp:759] [c10d] The client socket has failed to connect to [::]:29500 (errno: 97 - no)
[W1126 12:00:00.1 socket.cpp:7] [c10d] The IPv6 network addresses of (a, 29500) cannot be retrieved (gai error: -2)
W1126 12:00:00.000000 57 torch/distributed/elastic/agent/server/api.py:889] Sending process 60 closing signal SIGTERM
WARNING:huggingface_hub.utils._http:HTTP Error 429 thrown while requesting GET https://huggingface.co/api
Retrying in 1s [Retry 1/5].
2026-11-26 12:00:00,000 - WARNING - urllib3 - Retrying after connection broken by 'Connection reset by peer'
FutureWarning: You are using `torch.load` with `weights_only=False`; pickle can run code
UserWarning: resource_tracker: There appear to be 1 leaked shared memory objects to clean up at shutdown
NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 8 nics)
NCCL INFO NET/Socket : Using [0]enp73s0:10.1.216.156<0> [1]pod-id-link0:169.254.170.23<0>
2026-11-26 12:00:01.000012: 7 INFO ||NEURON_CC_WRAPPER||: Using a cached neff at /data/compile-cache/model.neff
Compiler status PASS
skipped 3 steps: gradient overflow, loss scale 65536 halved; grad_norm: inf
epoch 4: validation loss 2.13, perplexity inf-free, 429 of 500 batches, 0 errors, 404 samples
Found cached dataset; no missing keys; all keys matched; killed time waiting for data: 0.1 s
Restored the checkpoint of step 1200; 5 files, no such file was older; permission of /data checked"""


@pytest.mark.parametrize("line", SOUND.splitlines())
def test_a_line_of_a_sound_training_names_no_fault(line: str) -> None:
    assert catalogue.in_log([line]) is None


_QUOTA = 'pods "a" is forbidden: exceeded quota: team, requested: pods=1'
_TOKEN = "failed to fetch anonymous token: unexpected status from GET request: 401 Unauthorized"
_FULL = "failed to extract layer sha256:abc: write /var/lib/containerd/x: no space left on device: unknown"
MESSAGES = {
    "api": {
        "the API server refuses this machine's credentials": "api-unauthorized",
        "x509: certificate has expired or is not yet valid": "certificate-ended",
        "[Errno -2] Name or service not known": "api-name-unknown",
        "Internal error occurred: failed calling webhook": "webhook-not-answering",
    },
    "ec2": {
        "EC2 gave InsufficientInstanceCapacity: no trn1.32xlarge": "capacity-insufficient",
        "VcpuLimitExceeded: You have requested more vCPU capacity": "aws-quota-reached",
        "MaxSpotInstanceCountExceeded: Max spot instance count exceeded": "aws-quota-reached",
        "UnauthorizedOperation: You are not authorized to perform this operation.": "launch-refused",
        "InsufficientFreeAddressesInSubnet: no address": "addresses-exhausted",
    },
    "scheduler": {
        "1 max node group size reached": "pool-at-max",
        'persistentvolumeclaim "data" not found': "claim-missing",
    },
    "admission": {
        'Internal error occurred: failed calling webhook "x.volcano.sh": refused': "webhook-not-answering",
        _QUOTA: "quota-full",
        'error looking up service account lab/a: serviceaccount "a" not found': "service-account-missing",
        "no PriorityClass with name nowhere was found": "priority-class-missing",
        "Invalid value: must be no more than 63 characters": "name-too-long",
        'pods "a" is forbidden: violates PodSecurity': "pods-refused",
    },
    "registry": {
        _TOKEN: "image-refused",
        "tls: failed to verify certificate: x509: certificate signed by unknown authority": "image-unreachable",
        "dial tcp: lookup ghcr.io: Temporary failure in name resolution": "image-unreachable",
        "429 Too Many Requests - Server message: toomanyrequests: rate limit": "rate-limited",
        _FULL: "node-disk-full",
        "rpc error: code = NotFound desc = no match for platform in manifest: not found": "image-architecture",
        "failed to resolve reference: docker.io/x: not found": "image-missing",
    },
    "volume": {
        "driver name s3.csi.aws.com not found in the list of registered CSI drivers": "csi-driver-missing",
        "initial ListObjectsV2 failed for bucket: Client error: Forbidden: Access Denied": "aws-refused",
        'MountVolume.SetUp failed for volume "files" : configmap "files" not found': "config-missing",
        'references non-existent secret: secret "hf-token" not found': "secret-missing",
    },
    "runtime": {
        "failed to setup network: add cmd: failed to assign an IP address to container": "addresses-exhausted",
        "failed to create containerd task: exec /run: exec format error": "image-architecture",
        'exec: "torchrum": executable file not found in $PATH': "command-not-found",
        'exec: "/app": permission denied: unknown': "command-not-executable",
        'secret "hf-token" not found': "secret-missing",
        'configmap "files" not found': "config-missing",
        "failed to prepare subPath for volumeMount": "mount-path-refused",
        "mkdir /run/x: no space left on device": "node-disk-full",
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.9": "gpu-not-visible",
    },
    "kubelet": {
        "UnexpectedAdmissionError: Allocate failed due to no healthy devices present": "devices-not-allocated",
        "Evicted: The node was low on resource: ephemeral-storage.": "pod-evicted",
        "NodeShutdown: Pod was rejected as the node is shutting down.": "pod-ended-by-node",
    },
}


@pytest.mark.parametrize(
    ("who", "text", "fault"), [(who, text, fault) for who in MESSAGES for text, fault in MESSAGES[who].items()]
)
def test_a_message_names_its_fault_by_its_speaker(who: str, text: str, fault: str) -> None:
    found = catalogue.in_message(text, Speaker(who))
    assert found is not None
    assert found.name == fault


def test_every_speaker_of_a_fault_has_a_message_here_and_every_expression_for_logs_a_line() -> None:
    assert {fault.name for fault in FAULTS if Speaker.PROGRAM in fault.says} == {*LINES.values()}
    told = {(fault.name, who) for fault in FAULTS for who in fault.says if who is not Speaker.PROGRAM}
    assert told == {(fault, who) for who, texts in MESSAGES.items() for fault in texts.values()}
