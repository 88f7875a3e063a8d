"""IdleGuard: what its CronJob runs, and what it may do in Kubernetes and in AWS."""

import json

from unit.components.parts import LEAST, one, statements

from components import IdleGuard

TRN1 = LEAST["IdleGuard"]["groups"]["trn1"]
GPU = {"eks_name": "p4d-c3d4", "devices": ["nvidia.com/gpu"], "removes": False}


def guard(record, **args):
    given = {**LEAST["IdleGuard"], "groups": {"trn1": TRN1, "gpu": GPU}, **args}
    return record(lambda: IdleGuard("idle", given) and None, dry_run=False)


def settings(graph):
    (decides,) = one(graph, "CronJob").inputs["spec"]["jobTemplate"]["spec"]["template"]["spec"]["initContainers"]
    return json.loads(next(each["value"] for each in decides["env"] if each["name"] == "SETTINGS"))


def test_settings_have_every_key_of_the_guard(record):
    assert settings(guard(record, remove_after_minutes=7)) == {
        "groups": {
            "trn1-32xl-a1b2": {"minimum": 1, "devices": ["aws.amazon.com/neuron"], "removes": True},
            "p4d-c3d4": {"minimum": 0, "devices": ["nvidia.com/gpu"], "removes": False},
        },
        "warnSeconds": 180,
        "removeSeconds": 420,
    }
    # Without an end nothing is removed.
    assert settings(guard(record, remove_after_minutes=None))["removeSeconds"] is None


def test_guard_decides_first_and_ends_only_instances_of_guarded_groups(record):
    graph = guard(record)
    spec = one(graph, "CronJob").inputs["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    (decides,), (ends,) = pod["initContainers"], pod["containers"]
    assert decides["command"][:3] == ["python", "-m", "trainium_eks.observe.idle.guard"]
    assert decides["command"][3] in ends["command"][-1]
    assert "--should-decrement-desired-capacity" in ends["command"][-1]
    (statement,) = statements(graph)
    assert statement["Action"] == "autoscaling:TerminateInstanceInAutoScalingGroup"
    assert statement["Condition"] == {
        "StringEquals": {
            "aws:ResourceTag/eks:cluster-name": "training",
            "aws:ResourceTag/eks:nodegroup-name": ["trn1-32xl-a1b2"],
        }
    }
    # A guard that only warns may end nothing.
    (statement,) = statements(guard(record, groups={"gpu": GPU}))
    assert statement["Effect"] == "Deny"
