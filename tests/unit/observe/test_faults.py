"""The catalogue of faults: each entry can be found, is complete, and names commands that exist."""

import re
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from trainium_eks.cli.app import app
from trainium_eks.observe.alerts import alerts, runbook
from trainium_eks.observe.faults import catalogue
from trainium_eks.observe.faults.catalogue import BY_NAME, FAULTS
from trainium_eks.observe.faults.fault import Fault

ROOT = Path(runbook.__file__).parents[2]
CODE = "".join(file.read_text() for room in ("jobs", "operate") for file in (ROOT / room).rglob("*.py"))


def test_each_name_stands_once() -> None:
    assert len(BY_NAME) == len(FAULTS)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)+", fault.name) for fault in FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_an_entry_can_be_found_and_says_everything(fault: Fault) -> None:
    assert fault.log or fault.event or f'"{fault.name}"' in CODE, "no recognizer names it"
    assert all((fault.symptom.endswith("."), fault.cause.endswith("."), fault.remedy, fault.source))
    assert not fault.alert or f"- **{fault.name}**: {fault.symptom} Remedy: {fault.mend()}" in runbook.page(fault.alert)
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    for command in re.findall(r"\btrn ([a-z]+)", fault.remedy):
        assert command in root.commands, command
    for page in re.findall(r"docs/[\w-]+\.md", f"{fault.remedy} {fault.source}"):
        assert (ROOT.parent / page).is_file(), page


def test_alerts_of_the_catalogue_exist() -> None:
    assert {fault.alert for fault in FAULTS} - {""} <= {*alerts.names()}


def test_a_name_without_a_value_stands_in_capitals_and_words_as_the_catalogue_has_them() -> None:
    fault = BY_NAME["node-cordoned"]
    assert fault.mend(node="n1").endswith("kubectl uncordon n1")
    assert fault.mend().endswith("kubectl uncordon NODE")
    fault = BY_NAME["topology-busy"]
    assert fault.mend(wait="", looser="--tier 2") == "wait for those, or submit it with --tier 2"
    assert fault.mend() == "wait for those, or submit it with --topology soft"


def test_capitals_in_a_page_are_names_of_objects() -> None:
    """Placeholders for words, as "LOOK", would tell a reader nothing."""
    names = "AMOUNT CLAIM CLASS CLUSTER GROUP HYPERNODES IMAGE INSTANCE JOB KIND NAMESPACE NODE NODES POD"
    names += " PROCESS QUEUE QUEUES REGION RESOURCES STACK TAINT WEBHOOK"
    found = {each for fault in FAULTS for each in re.findall(r"\{(\w+)\}", fault.remedy)}
    assert found == {each.lower() for each in names.split()}
    assert all(" " in re.sub(r"\{\w+\}", "", fault.remedy).strip() for fault in FAULTS)


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
}


@pytest.mark.parametrize(("line", "fault"), LINES.items(), ids=LINES.values())
def test_a_line_of_a_log_names_its_fault(line: str, fault: str) -> None:
    found = catalogue.in_log(["loading data", line, "local rank 0 failed: exit code 1"])
    assert found is not None
    assert (found[0].name, found[1]) == (fault, line)


def test_every_expression_for_logs_has_a_line_here() -> None:
    assert {fault.name for fault in FAULTS if fault.log} == {*LINES.values()}


MESSAGES = {
    "EC2 gave InsufficientInstanceCapacity: no trn1.32xlarge": "capacity-insufficient",
    "VcpuLimitExceeded: You have requested more vCPU capacity": "aws-quota-reached",
    "failed to setup network: add cmd: failed to assign an IP address to container": "addresses-exhausted",
    "1 max node group size reached": "pool-at-max",
    'Internal error occurred: failed calling webhook "x.volcano.sh": refused': "webhook-not-answering",
    'pods "a" is forbidden: exceeded quota: team, requested: pods=1': "quota-full",
    'error looking up service account lab/a: serviceaccount "a" not found': "service-account-missing",
    "no PriorityClass with name nowhere was found": "priority-class-missing",
    "Invalid value: must be no more than 63 characters": "name-too-long",
    'pods "a" is forbidden: violates PodSecurity': "pods-refused",
    "failed to create containerd task: exec /run: exec format error": "image-architecture",
    'exec: "torchrum": executable file not found in $PATH': "command-not-found",
    'exec: "/app": permission denied: unknown': "command-not-executable",
    'secret "hf-token" not found': "secret-missing",
    'configmap "files" not found': "config-missing",
    "failed to prepare subPath for volumeMount": "mount-path-refused",
    "the API server refuses this machine's credentials": "api-unauthorized",
    "x509: certificate has expired or is not yet valid": "certificate-ended",
    "[Errno -2] Name or service not known": "api-name-unknown",
}


@pytest.mark.parametrize(("message", "fault"), MESSAGES.items(), ids=MESSAGES.values())
def test_a_message_names_its_fault(message: str, fault: str) -> None:
    found = catalogue.in_message(message)
    assert found is not None
    assert found.name == fault


def test_every_expression_for_messages_has_one_here() -> None:
    assert {fault.name for fault in FAULTS if fault.event} == {*MESSAGES.values()}


def test_keys_and_options_in_remedies_exist() -> None:
    texts = " ".join(fault.remedy for fault in FAULTS)
    known = (ROOT.parent / "docs" / "config.md").read_text()
    keys = re.findall(r"`([a-z]+[A-Z]\w+|[a-z]+(?:\.\w+)+)`", texts)
    assert [key for key in keys if key not in known and key != "subPath"] == []
    train = typer.main.get_command(app).commands["train"]  # type: ignore[attr-defined]
    options = {name for parameter in train.params for name in parameter.opts}
    assert {"--image", "--topology", "--env", "--hf-secret", "--ranks-per-node", "--name"} <= options
