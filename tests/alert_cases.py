"""Each alert in a case in which it fires, and in cases close to it in which it must not."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fleet_series import between, constant, cores, gang, node, pod, training

JOB = {"namespace": "research", "job_name": "a"}
GANG = {**JOB, "queue": "test"}
N1, GPU, GROUP = {"node": "n1"}, {"node": "g1", "gpu": "3"}, {"node_group": "ng1"}
UNHEALTHY, ILL = ({**N1, "condition": name} for name in ("AcceleratedHardwareReady", "NeuronHealth"))


class Case(NamedTuple):
    series: Mapping[str, str]
    at: str
    labels: Mapping[str, str] | None = None
    """Of the one that fires, without its severity; None for a case in which it stays silent."""
    summary: str = ""
    """Empty where it names labels alone."""
    silent_at: Sequence[str] = ()
    """When the same series must not fire: before its time, or after it."""


ECC = 'hardware_ecc_events_total{{node="n1",neuron_device_index="5",event_type="{}"}}'
BITS = {**N1, "neuron_device_index": "5", "event_type": "mem_ecc_uncorrected"}
LOST_BITS = ECC.format("mem_ecc_uncorrected")
FAILED = 'execution_errors_total{{node="n1",error_type="{}",runtime_tag="12"}}'
XID = 'DCGM_FI_DEV_XID_ERRORS{node="g1",gpu="3"}'
REMAPPED = 'DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{node="g1",gpu="3"}'
NOT_REMAPPED = 'DCGM_FI_DEV_ROW_REMAP_FAILURE{node="g1",gpu="3"}'
CONDITION = 'kube_node_status_condition{{node="n1",condition="{}",status="{}"}}'
BROKEN, SICK = CONDITION.format("AcceleratedHardwareReady", "false"), CONDITION.format("NeuronHealth", "true")

HARDWARE = {
    "NeuronUncorrectableError": {
        "a counter that begins with its first error": Case({LOST_BITS: between(5, 900, 1)}, "6m", BITS),
        "errors that were corrected": Case(
            {ECC.format("mem_ecc_corrected"): constant(900), ECC.format("sram_ecc_uncorrected"): constant(0)}, "6m"
        ),
    },
    "NeuronHardwareExecutionError": {
        "executions that fail in hardware": Case({FAILED.format("hardware"): "0x20 1x200"}, "15m", N1),
        "executions that fail for another reason": Case(
            {FAILED.format("numerical"): "0x20 1x200", FAILED.format("hardware"): constant(3)}, "15m"
        ),
    },
    "GpuXidError": {
        "a GPU that has fallen off the bus": Case({XID: "0x20 79x200"}, "15m", GPU, "GPU 3 of g1 reported XID 79"),
        "a fault of the program": Case({XID: "0x20 31x200"}, "15m"),
    },
    "GpuUncorrectableError": {
        "a row that was remapped": Case({REMAPPED: "1x20 2x200"}, "15m", GPU),
        "a remapping that failed": Case({NOT_REMAPPED: constant(1)}, "15m", GPU),
        "rows that were remapped long ago": Case({REMAPPED: constant(2), NOT_REMAPPED: constant(0)}, "15m"),
    },
    "AcceleratorUnhealthy": {
        "the node monitoring agent says so": Case({BROKEN: constant(1)}, "1m", UNHEALTHY),
        "Neuron's node problem detector says so": Case({SICK: constant(1)}, "1m", ILL),
        "both say that all is well": Case(
            {
                BROKEN: constant(0),
                CONDITION.format("AcceleratedHardwareReady", "true"): constant(1),
                CONDITION.format("NeuronHealth", "false"): constant(1),
                SICK: constant(0),
            },
            "1m",
        ),
    },
    "AcceleratorNotRepaired": {
        "the same node for longer than repair takes": Case(
            {**node("n1"), BROKEN: between(5, 900, before=0)}, "31m", UNHEALTHY, silent_at=["29m"]
        ),
        "a node that was repaired in time": Case({**node("n1"), BROKEN: between(5, 25, before=0) + " 0x2000"}, "31m"),
        "Neuron's node problem detector says so": Case({**node("n1"), SICK: constant(1)}, "31m", ILL),
    },
    "NodeNotRepaired": {
        "a node that stays away": Case(node("n1", ready=between(10, 900, 0, before=1)), "56m", N1, silent_at=["54m"]),
        "a node that came back": Case(node("n1", ready="1x19 0x80 1x2000"), "56m"),
        "a node that is gone": Case({CONDITION.format("Ready", "true"): "0x60 _x2000"}, "56m"),
    },
}

TWO_FREE = {**node("n1"), **node("n2")}
WAITS = gang("a", {"Pending": constant(1), "Running": constant(0)})
RUNS = gang("a", {"Running": constant(1)})
ENDED = gang("a", {"Running": constant(0), "Completed": constant(1)})
ENDS = (
    'trn_gang_capacity_block_ends_timestamp_seconds{namespace="research",job_name="a",queue="test",podgroup="a-0d1e"}'
)
SEVEN_HOURS = "a of research has not saved for 7h 0m 0s"


def in_seconds(seconds):
    """Return a moment that is so far from the fifth minute."""
    return constant(5 * 60 + seconds)


def stepping(step, seconds=2):
    return training("a", step=step, started_timestamp_seconds=constant(0), step_seconds=constant(seconds))


def compiling(seconds, step="0x2000"):
    return training("a", step=step, started_timestamp_seconds=in_seconds(-seconds))


def saved(seconds):
    times = {"started": constant(-90_000), "checkpoint": in_seconds(-seconds)}
    return training("a", **{f"{name}_timestamp_seconds": value for name, value in times.items()})


JOBS = {
    "GangStuck": {
        "two idle nodes, and a gang of two": Case({**TWO_FREE, **WAITS}, "21m", GANG, silent_at=["14m", "19m"]),
        "the idle nodes are too few": Case({**node("n1"), **WAITS}, "30m"),
        "one of the nodes has work": Case({**TWO_FREE, **pod("b-0", "n2"), **WAITS}, "30m"),
        "it runs": Case({**TWO_FREE, **gang("a", {"Pending": "1x2 0x2000", "Running": "0x2 1x2000"})}, "30m"),
    },
    "GangPartlyPlaced": {
        "pods that have no place beside pods that run": Case(
            gang("a", {"Unknown": constant(1)}), "11m", GANG, silent_at=["9m"]
        ),
        "for a moment": Case(gang("a", {"Unknown": "1x10 0x2000", "Running": "0x10 1x2000"}), "11m"),
    },
    "CapacityBlockEnding": {
        "it ends in three hours, under a job that runs": Case({**RUNS, ENDS: in_seconds(3 * 3600)}, "5m", JOB),
        "it ends in nine hours": Case({**RUNS, ENDS: in_seconds(9 * 3600)}, "5m"),
        "the job has ended": Case({**ENDED, ENDS: in_seconds(3 * 3600)}, "5m"),
    },
    "TrainingStalled": {
        "no step for twenty minutes, at two seconds each": Case(
            stepping("0+15x40 600x200"), "41m", JOB, silent_at=["30m"]
        ),
        "steps of five minutes, of which one takes twenty": Case(stepping("0x10 1x10 2x10 3x40 4x10", 300), "34m"),
        "a line for each hundred steps of ten seconds, which is more than a quarter of an hour": Case(
            stepping("0x33 100x33 200x33 300x33", 10), "50m"
        ),
        "it has ended": Case(stepping("0+15x40"), "41m"),
    },
    "TrainingWithoutFirstStep": {
        "two hours without one": Case(compiling(7201), "5m", JOB),
        "it compiles for an hour": Case(compiling(3600), "5m"),
        "it has made one": Case(compiling(7201, "0x3 1+1x2000"), "5m"),
    },
    "CheckpointTooOld": {
        "the last one was seven hours ago": Case(saved(25_200), "5m", JOB, SEVEN_HOURS),
        "it has never saved": Case(
            training("a", started_timestamp_seconds=in_seconds(-25_200)), "5m", JOB, SEVEN_HOURS
        ),
        "it has been at work for a day, and saved an hour ago": Case(saved(3600), "5m"),
    },
}

LEFT_AT_20 = between(20, 900, 0, before=1)
AT_WORK = {**node("n1"), **pod("a-0", "n1")}

IDLE = {
    "AcceleratorsIdle": {
        "one of two nodes has had no work for half an hour": Case({**TWO_FREE, **pod("a-0", "n1")}, "31m", GROUP),
        "a type without a known price": Case(node("n1", kind="trn9.48xlarge"), "31m", GROUP),
        "each had work a while ago": Case(
            {**TWO_FREE, **pod("a-0", "n1", phase=LEFT_AT_20), **pod("b-0", "n2", phase=LEFT_AT_20)}, "45m"
        ),
        "a node that has just come": Case(node("n1", since=20), "45m"),
        "a CPU node": Case({'kube_node_labels{node="c1",label_trainium_eks_pool="cpu"}': constant(1)}, "45m"),
    },
    "AcceleratorsHeldIdle": {
        "a pod that holds a node and computes nothing": Case(AT_WORK, "61m", {"namespace": "research"}),
        "it computes": Case({**AT_WORK, **cores("n1", {core: constant(0.9) for core in range(32)})}, "61m"),
        "it computed a moment ago": Case({**AT_WORK, **cores("n1", {0: "0x59 0.9x10 0x2000"})}, "61m"),
        "nobody knows: the monitor does not answer": Case(
            {**AT_WORK, 'neuron_hardware_info{node="n1"}': "_x2000"}, "61m"
        ),
    },
}

FREE = 'aws_fsx_free_data_storage_capacity_sum{dimension_FileSystemId="fs-1"}'
OLDEST = 'aws_fsx_age_of_oldest_queued_message_maximum{dimension_FileSystemId="fs-1"}'
FILES = {"file_system_id": "fs-1"}
FULL = {"namespace": "research", "persistentvolumeclaim": "data"}


def volume(available):
    claim, sizes = '{namespace="research",persistentvolumeclaim="data",node="n1"}', ("available", "capacity")
    values = (available, constant(1e12))
    return {f"kubelet_volume_stats_{size}_bytes{claim}": value for size, value in zip(sizes, values, strict=True)}


STORAGE = {
    "FileSystemFilling": {
        "it loses a gigabyte each half minute, and has 480": Case(
            {FREE: "720e9-1e9x1000"}, "2h", FILES, "The file system fs-1 will be full in 4h 0m 0s", ["10m"]
        ),
        "it has months left": Case({FREE: "720e9-1e6x1000"}, "2h"),
        "somebody removes files": Case({FREE: "100e9+1e6x1000"}, "2h"),
    },
    "VolumeFilling": {
        "it has 280 GB of 1000 left, and loses two each minute": Case(
            volume("520e9-1e9x1000"), "2h", FULL, "The volume of data in research will be full in 2h 20m 0s"
        ),
        "somebody has written for ten minutes": Case(volume("280e9-1e9x1000"), "10m"),
        "it fills fast, and is half empty": Case(volume("1000e9-1e9x1000"), "2h"),
        "it is used, and hardly fills": Case(volume("280e9-1e6x1000"), "2h"),
    },
    "VolumeNearlyFull": {
        "4 % are free": Case(volume(constant(4e10)), "6m", FULL, silent_at=["4m"]),
        "6 % are free": Case(volume(constant(6e10)), "6m"),
    },
    "ExportLagging": {
        "the oldest waits for two hours": Case({OLDEST: constant(7200)}, "6m", FILES, silent_at=["4m"]),
        "the oldest waits for ten minutes": Case({OLDEST: constant(600)}, "6m"),
    },
}

REFUSED = 'apiserver_admission_webhook_rejection_count{{name="{}",type="admit",operation="CREATE",error_type="{}"}}'
FAILED_OPEN = 'apiserver_admission_webhook_fail_open_count{name="pods.example.org",type="admit"}'
MUTATE, VALIDATE = "mutatejob.volcano.sh", "validatejob.volcano.sh"
VALID = 'kubelet_certificate_manager_server_ttl_seconds{node="n1"}'
EXPORTER = {"job": "neuron-monitor", "node": "n1", "instance": "10.0.1.5:8000"}
ANSWERS = 'up{job="neuron-monitor",node="n1",instance="10.0.1.5:8000"}'
AMP, RULES = {"remote_name": "amp"}, {"rule_group": "/etc/rules.yaml;trn-fleet"}
LOST = 'prometheus_remote_storage_samples_failed_total{remote_name="amp"}'
NEWEST = 'prometheus_remote_storage_queue_highest_timestamp_seconds{remote_name="amp"}'
SENT = 'prometheus_remote_storage_queue_highest_sent_timestamp_seconds{remote_name="amp"}'
BEHIND = "Prometheus is 10m 0s behind in writing to amp"
EVALUATIONS = 'prometheus_rule_evaluation_failures_total{rule_group="/etc/rules.yaml;trn-fleet"}'

PLATFORM = {
    "WebhookFailing": {
        "Volcano's webhook cannot be called": Case(
            {REFUSED.format(MUTATE, "calling_webhook_error"): "1+1x200"}, "15m", {"name": MUTATE}
        ),
        "one that lets all pass when it fails": Case({FAILED_OPEN: "1+1x200"}, "15m", {"name": "pods.example.org"}),
        "it refuses jobs that are wrong": Case({REFUSED.format(VALIDATE, "no_error"): "1+1x200"}, "15m"),
    },
    "CertificateEnding": {
        "five days are left": Case(
            {VALID: constant(5 * 86_400)}, "61m", N1, "The kubelet's certificate on n1 ends in 5d 0h 0m 0s", ["59m"]
        ),
        "thirty days are left": Case({VALID: constant(30 * 86_400)}, "61m"),
        "it is being renewed": Case({VALID: "432000x60 31536000x2000"}, "61m"),
    },
    "ExporterDown": {
        "it has not answered for ten minutes": Case(
            {ANSWERS: "1x10 0x2000"}, "16m", EXPORTER, "neuron-monitor on n1 does not answer", ["14m"]
        ),
        "it missed a few answers": Case({ANSWERS: "1x10 0x6 1x2000"}, "16m"),
        "somebody's own target": Case({'up{job="mine",instance="10.0.1.9:80"}': constant(0)}, "16m"),
    },
    "RemoteWriteFailing": {
        "samples are refused": Case({LOST: "0+600x200"}, "25m", AMP, silent_at=["8m"]),
        "some were, an hour ago": Case({LOST: "0+600x20 12000x2000"}, "80m"),
    },
    "RemoteWriteBehind": {
        "ten minutes behind": Case({NEWEST: "600+30x200", SENT: "0+30x200"}, "15m", AMP, BEHIND, ["8m"]),
        "one minute behind": Case({NEWEST: "60+30x200", SENT: "0+30x200"}, "15m"),
    },
    "RulesFailing": {
        "each time": Case({EVALUATIONS: "0+1x200"}, "25m", RULES, silent_at=["8m"]),
        "once": Case({EVALUATIONS: "0x9 1x2000"}, "25m"),
    },
}

CASES = {**HARDWARE, **JOBS, **IDLE, **STORAGE, **PLATFORM}
"""Alert to its cases by what is the case."""
