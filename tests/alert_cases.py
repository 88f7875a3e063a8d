"""Each alert in a case in which it fires, and in cases close to it in which it must not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet_series import between, constant, cores, gang, node, pod, training

JOB = {"namespace": "research", "job_name": "a"}
GANG = {**JOB, "queue": "test"}


@dataclass(frozen=True)
class Case:
    """One row."""

    alert: str
    what: str
    series: Mapping[str, str]
    at: str
    labels: Sequence[Mapping[str, str]] = ()
    """Of each that fires, without its severity; none for a case in which it stays silent."""
    summary: str = ""
    """Of the first."""


# --- hardware -------------------------------------------------------------------------------------------------------

ECC = 'hardware_ecc_events_total{{node="n1",neuron_device_index="5",event_type="{}"}}'
FAILED = 'execution_errors_total{{node="n1",error_type="{}",runtime_tag="12"}}'
XID = 'DCGM_FI_DEV_XID_ERRORS{node="g1",gpu="3"}'
REMAPPED = 'DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{node="g1",gpu="3"}'
CONDITION = 'kube_node_status_condition{{node="n1",condition="{}",status="{}"}}'
BROKEN = CONDITION.format("AcceleratedHardwareReady", "false")

HARDWARE = [
    Case(
        "NeuronUncorrectableError",
        "a counter that begins with its first error",
        {ECC.format("mem_ecc_uncorrected"): between(5, 900, 1)},
        "6m",
        [{"node": "n1", "neuron_device_index": "5", "event_type": "mem_ecc_uncorrected"}],
        "Neuron device 5 of n1 has uncorrectable memory errors",
    ),
    Case(
        "NeuronUncorrectableError",
        "errors that were corrected",
        {ECC.format("mem_ecc_corrected"): constant(900), ECC.format("sram_ecc_uncorrected"): constant(0)},
        "6m",
    ),
    Case(
        "NeuronHardwareExecutionError",
        "executions that fail in hardware",
        {FAILED.format("hardware"): "0x20 1x200"},
        "15m",
        [{"node": "n1"}],
        "Executions fail on n1 with hardware errors",
    ),
    Case(
        "NeuronHardwareExecutionError",
        "executions that fail for another reason",
        {FAILED.format("numerical"): "0x20 1x200", FAILED.format("hardware"): constant(3)},
        "15m",
    ),
    Case(
        "GpuXidError",
        "a GPU that has fallen off the bus",
        {XID: "0x20 79x200"},
        "15m",
        [{"node": "g1", "gpu": "3"}],
        "GPU 3 of g1 reported XID 79",
    ),
    Case("GpuXidError", "a fault of the program", {XID: "0x20 31x200"}, "15m"),
    Case(
        "GpuUncorrectableError",
        "a row that was remapped",
        {REMAPPED: "1x20 2x200"},
        "15m",
        [{"node": "g1", "gpu": "3"}],
        "GPU 3 of g1 has uncorrectable memory errors",
    ),
    Case(
        "GpuUncorrectableError",
        "a remapping that failed",
        {'DCGM_FI_DEV_ROW_REMAP_FAILURE{node="g1",gpu="3"}': constant(1)},
        "15m",
        [{"node": "g1", "gpu": "3"}],
        "GPU 3 of g1 has uncorrectable memory errors",
    ),
    Case(
        "GpuUncorrectableError",
        "rows that were remapped long ago",
        {REMAPPED: constant(2), 'DCGM_FI_DEV_ROW_REMAP_FAILURE{node="g1",gpu="3"}': constant(0)},
        "15m",
    ),
    Case(
        "AcceleratorUnhealthy",
        "the node monitoring agent says so",
        {BROKEN: constant(1)},
        "1m",
        [{"node": "n1", "condition": "AcceleratedHardwareReady"}],
        "n1 reports broken accelerators",
    ),
    Case(
        "AcceleratorUnhealthy",
        "Neuron's node problem detector says so",
        {CONDITION.format("NeuronHealth", "true"): constant(1)},
        "1m",
        [{"node": "n1", "condition": "NeuronHealth"}],
        "n1 reports broken accelerators",
    ),
    Case(
        "AcceleratorUnhealthy",
        "both say that all is well",
        {
            BROKEN: constant(0),
            CONDITION.format("AcceleratedHardwareReady", "true"): constant(1),
            CONDITION.format("NeuronHealth", "false"): constant(1),
            CONDITION.format("NeuronHealth", "true"): constant(0),
        },
        "1m",
    ),
    Case(
        "AcceleratorNotRepaired",
        "the same node for longer than repair takes",
        {**node("n1"), BROKEN: between(5, 900, before=0)},
        "31m",
        [{"node": "n1", "condition": "AcceleratedHardwareReady"}],
        "n1 has had broken accelerators for 25 minutes",
    ),
    Case(
        "AcceleratorNotRepaired",
        "a node that was repaired in time",
        {**node("n1"), BROKEN: between(5, 25, before=0) + " 0x2000"},
        "31m",
    ),
    Case(
        "AcceleratorNotRepaired",
        "Neuron's node problem detector says so",
        {**node("n1"), CONDITION.format("NeuronHealth", "true"): constant(1)},
        "31m",
        [{"node": "n1", "condition": "NeuronHealth"}],
        "n1 has had broken accelerators for 25 minutes",
    ),
    Case(
        "AcceleratorNotRepaired",
        "repair has not had its time",
        {**node("n1"), BROKEN: between(5, 900, before=0)},
        "29m",
    ),
    Case("NodeNotRepaired", "repair has not had its time", node("n1", ready=between(10, 900, 0, before=1)), "54m"),
    Case(
        "NodeNotRepaired",
        "a node that stays away",
        node("n1", ready=between(10, 900, 0, before=1)),
        "56m",
        [{"node": "n1"}],
        "n1 has not been ready for 45 minutes",
    ),
    Case(
        "NodeNotRepaired",
        "a node that came back",
        node("n1", ready="1x19 0x80 1x2000"),
        "56m",
    ),
    Case("NodeNotRepaired", "a node that is gone", {CONDITION.format("Ready", "true"): "0x60 _x2000"}, "56m"),
]

# --- jobs -----------------------------------------------------------------------------------------------------------

TWO_FREE = {**node("n1"), **node("n2")}
WAITING = {"Pending": constant(1), "Running": constant(0)}
STEPS = {"started_timestamp_seconds": constant(0), "step_seconds": constant(2)}
ENDS = (
    'trn_gang_capacity_block_ends_timestamp_seconds{namespace="research",job_name="a",queue="test",podgroup="a-0d1e"}'
)

JOBS = [
    Case(
        "GangStuck",
        "two idle nodes, and a gang of two",
        {**TWO_FREE, **gang("a", WAITING)},
        "21m",
        [GANG],
        "a of research waits while nodes are idle that would hold it",
    ),
    Case("GangStuck", "it has not waited for long", {**TWO_FREE, **gang("a", WAITING)}, "14m"),
    Case("GangStuck", "it may just have got its nodes", {**TWO_FREE, **gang("a", WAITING)}, "19m"),
    Case("GangStuck", "the idle nodes are too few", {**node("n1"), **gang("a", WAITING)}, "30m"),
    Case("GangStuck", "one of the nodes has work", {**TWO_FREE, **pod("b-0", "n2"), **gang("a", WAITING)}, "30m"),
    Case(
        "GangStuck",
        "it runs",
        {**TWO_FREE, **gang("a", {"Pending": "1x2 0x2000", "Running": "0x2 1x2000"})},
        "30m",
    ),
    Case(
        "GangPartlyPlaced",
        "pods that have no place beside pods that run",
        gang("a", {"Unknown": constant(1)}),
        "11m",
        [GANG],
        "a of research runs with pods missing",
    ),
    Case("GangPartlyPlaced", "the missing pod is on its way", gang("a", {"Unknown": constant(1)}), "9m"),
    Case("GangPartlyPlaced", "for a moment", gang("a", {"Unknown": "1x10 0x2000", "Running": "0x10 1x2000"}), "11m"),
    Case(
        "CapacityBlockEnding",
        "it ends in three hours, under a job that runs",
        {**gang("a", {"Running": constant(1)}), ENDS: constant(3 * 3600 + 300)},
        "5m",
        [JOB],
        "The Capacity Block under a of research ends soon",
    ),
    Case(
        "CapacityBlockEnding",
        "it ends in nine hours",
        {**gang("a", {"Running": constant(1)}), ENDS: constant(9 * 3600 + 300)},
        "5m",
    ),
    Case(
        "CapacityBlockEnding",
        "the job has ended",
        {**gang("a", {"Running": constant(0), "Completed": constant(1)}), ENDS: constant(3 * 3600 + 300)},
        "5m",
    ),
    Case(
        "TrainingStalled",
        "no step for twenty minutes, at two seconds each",
        training("a", step="0+15x40 600x200", **STEPS),
        "41m",
        [JOB],
        "a of research makes no steps",
    ),
    Case("TrainingStalled", "a pause of ten minutes", training("a", step="0+15x40 600x200", **STEPS), "30m"),
    Case(
        "TrainingStalled",
        "steps of five minutes, of which one takes twenty",
        training("a", step="0x10 1x10 2x10 3x40 4x10", **{**STEPS, "step_seconds": constant(300)}),
        "34m",
    ),
    Case(
        "TrainingStalled",
        "a line for each hundred steps of ten seconds, which is more than a quarter of an hour",
        training("a", step="0x33 100x33 200x33 300x33", **{**STEPS, "step_seconds": constant(10)}),
        "50m",
    ),
    Case("TrainingStalled", "it has ended", training("a", step="0+15x40", **STEPS), "41m"),
    Case(
        "TrainingWithoutFirstStep",
        "two hours without one",
        training("a", step=constant(0), started_timestamp_seconds=constant(5 * 60 - 7201)),
        "5m",
        [JOB],
        "a of research has not made its first step",
    ),
    Case(
        "TrainingWithoutFirstStep",
        "it compiles for an hour",
        training("a", step=constant(0), started_timestamp_seconds=constant(5 * 60 - 3600)),
        "5m",
    ),
    Case(
        "TrainingWithoutFirstStep",
        "it has made one",
        training("a", step="0x3 1+1x2000", started_timestamp_seconds=constant(5 * 60 - 7201)),
        "5m",
    ),
    Case(
        "CheckpointTooOld",
        "the last one was seven hours ago",
        training(
            "a", started_timestamp_seconds=constant(-90_000), checkpoint_timestamp_seconds=constant(5 * 60 - 25_200)
        ),
        "5m",
        [JOB],
        "a of research has not saved for 7h 0m 0s",
    ),
    Case(
        "CheckpointTooOld",
        "it has never saved",
        training("a", started_timestamp_seconds=constant(5 * 60 - 25_200)),
        "5m",
        [JOB],
        "a of research has not saved for 7h 0m 0s",
    ),
    Case(
        "CheckpointTooOld",
        "it has been at work for a day, and saved an hour ago",
        training(
            "a", started_timestamp_seconds=constant(-90_000), checkpoint_timestamp_seconds=constant(5 * 60 - 3600)
        ),
        "5m",
    ),
]

# --- idle -----------------------------------------------------------------------------------------------------------

CPU_NODE = 'kube_node_labels{node="c1",label_trainium_eks_pool="cpu"}'
ALL_BUSY = {core: constant(0.9) for core in range(32)}

IDLE = [
    Case(
        "AcceleratorsIdle",
        "one of two nodes has had no work for half an hour",
        {**TWO_FREE, **pod("a-0", "n1")},
        "31m",
        [{"node_group": "ng1"}],
        "Nodes of ng1 are idle",
    ),
    Case(
        "AcceleratorsIdle",
        "a type without a known price",
        node("n1", kind="trn9.48xlarge"),
        "31m",
        [{"node_group": "ng1"}],
        "Nodes of ng1 are idle",
    ),
    Case(
        "AcceleratorsIdle",
        "each had work a while ago",
        {
            **TWO_FREE,
            **pod("a-0", "n1", phase=between(20, 900, 0, before=1)),
            **pod("b-0", "n2", phase=between(20, 900, 0, before=1)),
        },
        "45m",
    ),
    Case("AcceleratorsIdle", "a node that has just come", node("n1", since=20), "45m"),
    Case(
        "AcceleratorsIdle",
        "a CPU node",
        {CPU_NODE: constant(1)},
        "45m",
    ),
    Case(
        "AcceleratorsHeldIdle",
        "a pod that holds a node and computes nothing",
        {**node("n1"), **pod("a-0", "n1")},
        "61m",
        [{"namespace": "research"}],
        "Pods of research hold devices that do nothing",
    ),
    Case(
        "AcceleratorsHeldIdle",
        "it computes",
        {**node("n1"), **pod("a-0", "n1"), **cores("n1", ALL_BUSY)},
        "61m",
    ),
    Case(
        "AcceleratorsHeldIdle",
        "it computed a moment ago",
        {**node("n1"), **pod("a-0", "n1"), **cores("n1", {0: "0x59 0.9x10 0x2000"})},
        "61m",
    ),
    Case(
        "AcceleratorsHeldIdle",
        "nobody knows: the monitor does not answer",
        {**node("n1"), **pod("a-0", "n1"), 'neuron_hardware_info{node="n1"}': "_x2000"},
        "61m",
    ),
]

# --- storage --------------------------------------------------------------------------------------------------------

FREE = 'aws_fsx_free_data_storage_capacity_sum{dimension_FileSystemId="fs-1"}'
OLDEST = 'aws_fsx_age_of_oldest_queued_message_maximum{dimension_FileSystemId="fs-1"}'
CLAIM = '{namespace="research",persistentvolumeclaim="data",node="n1"}'
FULL = {"namespace": "research", "persistentvolumeclaim": "data"}


def volume(available: str) -> dict[str, str]:
    """A claim of 1 TB."""
    return {
        f"kubelet_volume_stats_available_bytes{CLAIM}": available,
        f"kubelet_volume_stats_capacity_bytes{CLAIM}": constant(1e12),
    }


STORAGE = [
    Case(
        "FileSystemFilling",
        "it loses a gigabyte each half minute, and has 480",
        {FREE: "720e9-1e9x1000"},
        "2h",
        [{"file_system_id": "fs-1"}],
        "The file system fs-1 will be full in 4h 0m 0s",
    ),
    Case("FileSystemFilling", "somebody has written for ten minutes", {FREE: "720e9-1e9x1000"}, "10m"),
    Case("FileSystemFilling", "it has months left", {FREE: "720e9-1e6x1000"}, "2h"),
    Case("FileSystemFilling", "somebody removes files", {FREE: "100e9+1e6x1000"}, "2h"),
    Case(
        "VolumeFilling",
        "it has 280 GB of 1000 left, and loses two each minute",
        volume("520e9-1e9x1000"),
        "2h",
        [FULL],
        "The volume of data in research will be full in 2h 20m 0s",
    ),
    Case("VolumeFilling", "somebody has written for ten minutes", volume("280e9-1e9x1000"), "10m"),
    Case("VolumeFilling", "it fills fast, and is half empty", volume("1000e9-1e9x1000"), "2h"),
    Case("VolumeFilling", "it is used, and hardly fills", volume("280e9-1e6x1000"), "2h"),
    Case(
        "VolumeNearlyFull",
        "4 % are free",
        volume(constant(4e10)),
        "6m",
        [FULL],
        "The volume of data in research is nearly full",
    ),
    Case("VolumeNearlyFull", "for a moment", volume(constant(4e10)), "4m"),
    Case("VolumeNearlyFull", "6 % are free", volume(constant(6e10)), "6m"),
    Case(
        "ExportLagging",
        "the oldest waits for two hours",
        {OLDEST: constant(7200)},
        "6m",
        [{"file_system_id": "fs-1"}],
        "Files of fs-1 wait for their export to S3",
    ),
    Case("ExportLagging", "for a moment", {OLDEST: constant(7200)}, "4m"),
    Case("ExportLagging", "the oldest waits for ten minutes", {OLDEST: constant(600)}, "6m"),
]

# --- platform -------------------------------------------------------------------------------------------------------

REFUSED = 'apiserver_admission_webhook_rejection_count{{name="{}",type="admit",operation="CREATE",error_type="{}"}}'
VALID = 'kubelet_certificate_manager_server_ttl_seconds{node="n1"}'
ANSWERS = 'up{job="neuron-monitor",node="n1",instance="10.0.1.5:8000"}'
LOST = 'prometheus_remote_storage_samples_failed_total{remote_name="amp"}'
NEWEST = 'prometheus_remote_storage_queue_highest_timestamp_seconds{remote_name="amp"}'
SENT = 'prometheus_remote_storage_queue_highest_sent_timestamp_seconds{remote_name="amp"}'
EVALUATIONS = 'prometheus_rule_evaluation_failures_total{rule_group="/etc/rules.yaml;trn-fleet"}'

PLATFORM = [
    Case(
        "WebhookFailing",
        "Volcano's webhook cannot be called",
        {REFUSED.format("mutatejob.volcano.sh", "calling_webhook_error"): "1+1x200"},
        "15m",
        [{"name": "mutatejob.volcano.sh"}],
        "The admission webhook mutatejob.volcano.sh cannot be called",
    ),
    Case(
        "WebhookFailing",
        "one that lets all pass when it fails",
        {'apiserver_admission_webhook_fail_open_count{name="pods.example.org",type="admit"}': "1+1x200"},
        "15m",
        [{"name": "pods.example.org"}],
        "The admission webhook pods.example.org cannot be called",
    ),
    Case(
        "WebhookFailing",
        "it refuses jobs that are wrong",
        {REFUSED.format("validatejob.volcano.sh", "no_error"): "1+1x200"},
        "15m",
    ),
    Case(
        "CertificateEnding",
        "five days are left",
        {VALID: constant(5 * 86_400)},
        "61m",
        [{"node": "n1"}],
        "The kubelet's certificate on n1 ends in 5d 0h 0m 0s",
    ),
    Case("CertificateEnding", "it may be being renewed", {VALID: constant(5 * 86_400)}, "59m"),
    Case("CertificateEnding", "thirty days are left", {VALID: constant(30 * 86_400)}, "61m"),
    Case("CertificateEnding", "it is being renewed", {VALID: "432000x60 31536000x2000"}, "61m"),
    Case(
        "ExporterDown",
        "it has not answered for ten minutes",
        {ANSWERS: "1x10 0x2000"},
        "16m",
        [{"job": "neuron-monitor", "node": "n1", "instance": "10.0.1.5:8000"}],
        "neuron-monitor on n1 does not answer",
    ),
    Case("ExporterDown", "it may be starting", {ANSWERS: "1x10 0x2000"}, "14m"),
    Case("ExporterDown", "it missed a few answers", {ANSWERS: "1x10 0x6 1x2000"}, "16m"),
    Case("ExporterDown", "somebody's own target", {'up{job="mine",instance="10.0.1.9:80"}': constant(0)}, "16m"),
    Case(
        "RemoteWriteFailing",
        "samples are refused",
        {LOST: "0+600x200"},
        "25m",
        [{"remote_name": "amp"}],
        "Prometheus loses samples on the way to amp",
    ),
    Case("RemoteWriteFailing", "for some minutes", {LOST: "0+600x200"}, "8m"),
    Case("RemoteWriteFailing", "some were, an hour ago", {LOST: "0+600x20 12000x2000"}, "80m"),
    Case(
        "RemoteWriteBehind",
        "ten minutes behind",
        {NEWEST: "600+30x200", SENT: "0+30x200"},
        "15m",
        [{"remote_name": "amp"}],
        "Prometheus is 10m 0s behind in writing to amp",
    ),
    Case("RemoteWriteBehind", "it has just started", {NEWEST: "600+30x200", SENT: "0+30x200"}, "8m"),
    Case("RemoteWriteBehind", "one minute behind", {NEWEST: "60+30x200", SENT: "0+30x200"}, "15m"),
    Case(
        "RulesFailing",
        "each time",
        {EVALUATIONS: "0+1x200"},
        "25m",
        [{"rule_group": "/etc/rules.yaml;trn-fleet"}],
        "Rules of /etc/rules.yaml;trn-fleet cannot be computed",
    ),
    Case("RulesFailing", "for some minutes", {EVALUATIONS: "0+1x200"}, "8m"),
    Case("RulesFailing", "once", {EVALUATIONS: "0x9 1x2000"}, "25m"),
]

CASES = [*HARDWARE, *JOBS, *IDLE, *STORAGE, *PLATFORM]
