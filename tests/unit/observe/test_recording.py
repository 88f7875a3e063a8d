"""What the recording rules compute, by a real promtool, from series as exporters give them."""

import promtool
import pytest
from fleet_series import between, constant, cores, gang, node, pod, training
from promtool import PRICES

from trainium_eks.observe import rules

TWO_NODES = {**node("n1"), **node("n2")}
RESEARCH = '{{namespace="research", job_name="{}", queue="test", resource="aws_amazon_com_neuron"}}'
GROUP, NG1 = '{node_group="ng1", instance_type="trn1.32xlarge"}', '{node_group="ng1"}'
N1 = '{node="n1", node_group="ng1", instance_type="trn1.32xlarge", zone="usw2-az4"}'
K1 = '{node="k1", node_group="cpu", instance_type="m7i.xlarge", zone="us-west-2a"}'
KARPENTERS = (
    'kube_node_labels{node="k1",label_karpenter_sh_nodepool="cpu",label_topology_kubernetes_io_zone="us-west-2a",'
    'label_node_kubernetes_io_instance_type="m7i.xlarge"}'
)
CAPACITY = 'kube_node_status_capacity{node="n1",resource="aws_amazon_com_neuron",unit="integer"}'
UTIL = 'DCGM_FI_DEV_GPU_UTIL{node="g1",gpu='
OF_A = '{namespace="research", job_name="a"}'
A_WAITS = '{namespace="research", job_name="a", queue="test"}'
PODS = {
    "a-0": ',label_volcano_sh_job_name="a",label_volcano_sh_queue_name="test"',
    "b-0": ',label_training_kubeflow_org_job_name="b"',
    "c-0": ',label_jobset_sigs_k8s_io_jobset_name="c",label_batch_kubernetes_io_job_name="c-node-0"',
    "other": "",
}
"""Pods and their labels."""


def labelled(name, labels, uid=""):
    return {f'kube_pod_labels{{namespace="research",pod="{name}"{uid}{labels}}}': constant(1)}


def of_pods():
    found = {}
    for name, labels in PODS.items():
        uid = f',uid="u-{name}"'
        found |= {f'kube_pod_info{{namespace="research",pod="{name}"{uid},node="n1"}}': constant(1)}
        found |= labelled(name, labels, uid)
    return found


def goodput(step, productive, started="0x400", pod="0"):
    return training("a", pod=pod, started_timestamp_seconds=started, step=step, productive_seconds_total=productive)


TRIALS = {
    "a node's labels say its group, type and zone": (TWO_NODES, {"trn:node_info{node='n1'}": {N1: 1}}),
    "a node of Karpenter is of its pool, and in the zone that its name says": (
        {KARPENTERS: constant(1)},
        {"trn:node_info": {K1: 1}},
    ),
    "two copies of kube-state-metrics make no second node": (
        {**TWO_NODES, **{key.replace("{", '{instance="b",', 1): values for key, values in node("n1").items()}},
        {"trn:devices:total": {GROUP: 32}, "trn:usd_per_hour": {NG1: 43}},
    ),
    "devices in all, requested, and what the others cost": (
        {**TWO_NODES, **pod("a-0", "n1")},
        {
            "trn:devices:total": {GROUP: 32},
            "trn:devices:requested": {GROUP: 16},
            "trn:usd_per_hour": {NG1: 43},
            "trn:idle_usd_per_hour": {NG1: 21.5},
        },
    ),
    "a node of which a quarter is requested idles by three quarters": (
        {**node("n1"), **pod("a-0", "n1", devices=4)},
        {"trn:idle_usd_per_hour": {NG1: 16.125}},
    ),
    "a pod that has ended holds nothing": (
        {**node("n1"), **pod("a-0", "n1", phase=between(10, 900, 0, before=1))},
        {"9m trn:devices:requested": {GROUP: 16}, "11m trn:devices:requested": {GROUP: 0}},
    ),
    "a node whose device plugin has gone is idle as a whole": (
        {**node("n1"), CAPACITY: "0x2000"},
        {"trn:idle_usd_per_hour": {NG1: 21.5}},
    ),
    "free are ready, open nodes without work": (
        {
            **TWO_NODES,
            **node("n3", ready="0x2000"),
            **pod("a-0", "n1"),
            **node("n4"),
            'kube_node_spec_unschedulable{node="n4"}': constant(1),
        },
        {"trn:devices:free": {'{resource="aws_amazon_com_neuron"}': 16}},
    ),
    "cores that no process holds count as idle, and a core of two runtimes counts once": (
        {
            **TWO_NODES,
            **cores("n1", {core: constant(0.5) for core in range(32)}),
            'neuroncore_utilization_ratio{node="n1",neuroncore="0",runtime_tag="13"}': constant(0.1),
        },
        {"trn:cores:busy_ratio": {'{node="n1"}': 0.5, '{node="n2"}': 0}, "trn:devices:busy_ratio": {GROUP: 0.25}},
    ),
    "a node whose monitor does not answer is not called idle": (
        {**node("n1"), 'neuron_hardware_info{node="n1"}': "_x2000"},
        {"trn:cores:busy_ratio": {}, "trn:devices:busy_ratio": {}},
    ),
    "GPUs are as busy as DCGM says": (
        {
            **node("g1", group="gpu", kind="p5.48xlarge"),
            f'{UTIL}"0"}}': constant(100),
            f'{UTIL}"1",pod="a-0"}}': constant(50),
            f'{UTIL}"1"}}': constant(50),
        },
        {"trn:cores:busy_ratio": {'{node="g1"}': 0.75}, "trn:usd_per_hour": {'{node_group="gpu"}': 55.04}},
    ),
    "a training's pods by what each controller calls its job, and nobody else's": (
        of_pods(),
        {
            "trn:training:pods": {
                f'{{namespace="research", pod="{job}-0", node="n1", job_name="{job}"{queue}}}': 1
                for job, queue in {"a": ', queue="test"', "b": "", "c": ""}.items()
            }
        },
    ),
    "a gang waits from when it was made until it runs": (
        gang("a", {"Pending": between(30, 900, 0, before=1), "Running": between(30, 900, before=0)}, created=10),
        {"25m trn:gang_wait_seconds": {A_WAITS: 900}, "35m trn:gang_wait_seconds": {}},
    ),
    "a gang's devices by its pods, where Volcano does not say them": (
        {
            **pod("a-0", ""),
            **labelled("a-0", PODS["a-0"]),
            **pod("a-1", ""),
            **labelled("a-1", PODS["a-0"]),
            **gang("b", {"Pending": constant(1)}, devices=48),
        },
        {"trn:gang:devices": {RESEARCH.format("a"): 32, RESEARCH.format("b"): 48}},
    ),
    "a gang that was restarted waits since it last ran": (
        gang("a", {"Running": "0x20 1x99 0x2000", "Inqueue": "0x120 1x2000"}),
        {"70m trn:gang_wait_seconds": {A_WAITS: 600}},
    ),
    "goodput: ten of a hundred minutes without steps": (
        goodput("0x20 1+1x179", "0x20 30+30x179", "0x200"),
        {"100m round(trn:goodput:ratio, 0.01)": {OF_A: 0.9}},
    ),
    "goodput: a restart makes half of the steps again": (
        {
            **goodput("0+1x400", "0+30x400"),
            **goodput("_x401 200+1x400", "_x401 0+30x400", "_x401 12030x400", pod="1"),
        },
        # The minute in which the new pod comes is not seen.
        {"400m round(trn:goodput:ratio, 0.05)": {OF_A: 0.75}},
    ),
    "an ended training has no goodput any more": (
        {
            **goodput("0+1x99", "0+30x99", "0x99"),
            **gang("a", {"Running": between(50, 900, 0, before=1), "Completed": between(50, 900, before=0)}),
        },
        {"49m round(trn:goodput:ratio, 0.01)": {OF_A: 1}, "60m trn:goodput:ratio": {}},
    ),
    "CloudWatch's series of a file system by its id": (
        {
            'aws_fsx_free_data_storage_capacity_sum{dimension_FileSystemId="fs-1",name="arn"}': constant(1e12),
            'aws_fsx_age_of_oldest_queued_message_maximum{dimension_FileSystemId="fs-1",name="arn"}': constant(120),
        },
        {
            "trn:file_system:free_bytes": {'{file_system_id="fs-1"}': 1e12},
            "trn:file_system:export_age_seconds": {'{file_system_id="fs-1"}': 120},
        },
    ),
}


@pytest.mark.parametrize("trial", TRIALS)
def test_recording_rules_compute(trial, tool, tmp_path):
    promtool.check(tool, tmp_path, rules.recording(PRICES), [(trial, *TRIALS[trial])])


def test_every_recorded_name_is_explained():
    recorded = [rule["record"] for group in rules.recording(PRICES) for rule in group["rules"]]
    assert {*recorded} == rules.meanings().keys()
    assert {name: recorded.count(name) for name in recorded if recorded.count(name) > 1} == {
        "trn:instance_usd_per_hour": len(PRICES)
    }
