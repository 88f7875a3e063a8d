"""Namespaces, queues, and the Volcano that schedules by them."""

from collections.abc import Callable
from typing import Any

import pytest
from cluster_snapshots import EFA, NEURON, judged, outputs, the, without

from trainium_eks.operate.verify.check import CheckStatus
from trainium_eks.operate.verify.local_report import LocalReport

UNREACHABLE = "chart repository not reachable: https://volcano-sh.github.io"
NO_CHART = LocalReport({"volcano": UNREACHABLE})
SIMULATED = LocalReport()
REAL = LocalReport(
    real_volcano=True, running=frozenset({"vc-scheduler", "vc-controller-manager", "vc-webhook-manager"})
)


def _without_volcano(made: Any) -> None:
    for name in ("volcano-scheduler", "volcano-controllers", "volcano-admission"):
        without(made, "Deployment", name)
    made["MutatingWebhookConfiguration"] = made["ValidatingWebhookConfiguration"] = []
    the(made, "Queue", "test").pop("status")


def test_a_queue_shows_its_bounds_and_its_state() -> None:
    found = judged()
    assert found["queues/test"].detail == f"64 {NEURON}, 32 {EFA}"
    assert (found["queues/test/state"].status, found["queues/test/state"].detail) == (CheckStatus.PASS, "Open")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda capability: capability.update({NEURON: 32}), f"{NEURON} has 32, wants 64"),
        (lambda capability: capability.pop(EFA), f"{EFA} has no bound, wants 32"),
        (lambda capability: capability.update(cpu="2"), "cpu has 2, wants no bound"),
    ],
)
def test_a_queue_with_another_capability_says_what_differs(
    change: Callable[[dict[str, Any]], object], fault: str
) -> None:
    check = judged(lambda made: change(the(made, "Queue", "test")["spec"]["capability"]))["queues/test"]
    assert check.status is CheckStatus.FAIL
    assert check.faults == (fault,)


@pytest.mark.parametrize(
    ("amount", "status"),
    [("31", CheckStatus.PASS), ("32", CheckStatus.PASS), ("33", CheckStatus.FAIL), (33, CheckStatus.FAIL)],
)
def test_guarantees_are_held_against_the_nodes_that_are_there(amount: str | int, status: CheckStatus) -> None:
    def guarantee(made: Any) -> None:
        the(made, "Queue", "test")["spec"]["guarantee"] = {"resource": {NEURON: amount}}

    check = judged(guarantee)["queues/guarantees"]
    assert check.status is status
    if status is CheckStatus.FAIL:
        assert check.faults == (f"{NEURON}: 33 guaranteed, the Ready nodes have 32",)


def test_a_node_that_is_not_ready_guarantees_nothing() -> None:
    def spoil(made: Any) -> None:
        the(made, "Queue", "test")["spec"]["guarantee"] = {"resource": {NEURON: 32}}
        the(made, "Node", "trn0")["status"]["conditions"] = [{"type": "Ready", "status": "False"}]

    assert judged(spoil)["queues/guarantees"].status is CheckStatus.FAIL


def test_guarantees_of_queues_below_another_are_shares_of_its_own() -> None:
    def nest(made: Any) -> None:
        top = the(made, "Queue", "test")
        top["spec"].update(guarantee={"resource": {NEURON: "32"}}, parent="root")
        below = {"guarantee": {"resource": {NEURON: "32"}}, "parent": "test"}
        made["Queue"].append({"metadata": {"name": "below"}, "spec": below})

    assert judged(nest)["queues/guarantees"].detail == f"32 of 32 {NEURON}"


def test_without_guarantees_there_is_nothing_to_hold() -> None:
    assert judged()["queues/guarantees"].status is CheckStatus.NOT_APPLICABLE


def test_a_queue_that_is_missing_fails_and_its_state_was_not_looked_at() -> None:
    found = judged(lambda made: without(made, "Queue", "test"))
    assert found["queues/test"].status is CheckStatus.FAIL
    assert found["queues/test/state"].status is CheckStatus.NOT_APPLICABLE


def test_a_cluster_that_knows_no_queues_says_so() -> None:
    found = judged(lambda made: made.pop("Queue"), unserved=frozenset({"Queue"}))
    assert (found["queues/test"].status, found["queues/test"].detail) == (
        CheckStatus.FAIL,
        "the cluster knows no queues",
    )


def test_a_closed_queue_fails_with_how_to_open_it_even_on_a_local_cluster() -> None:
    for local in (None, SIMULATED, NO_CHART):
        check = judged(lambda made: the(made, "Queue", "test")["status"].update(state="Closed"), local=local)[
            "queues/test/state"
        ]
        assert (check.status, check.detail) == (CheckStatus.FAIL, "is Closed, and takes no jobs")
        assert "vcctl queue operate --name test --action open" in check.remedy


def test_a_queue_without_state_fails_where_volcano_runs() -> None:
    for local in (None, REAL):
        check = judged(lambda made: the(made, "Queue", "test").pop("status"), local=local)["queues/test/state"]
        assert check.status is CheckStatus.FAIL


def test_a_queue_without_state_is_not_installed_where_nobody_opens_queues() -> None:
    def spoil(made: Any) -> None:
        the(made, "Queue", "test").pop("status")

    check = judged(spoil, local=SIMULATED)["queues/test/state"]
    assert check.status is CheckStatus.NOT_INSTALLED
    assert check.detail == "vc-controller-manager is not on PATH, so nobody opens queues"


def test_a_local_cluster_without_volcanos_chart_names_the_reason_and_fails_nothing() -> None:
    found = judged(_without_volcano, local=NO_CHART)
    assert [check.id for check in found.values() if check.status is CheckStatus.FAIL] == []
    missing = {check.id for check in found.values() if check.status is CheckStatus.NOT_INSTALLED}
    assert missing == {
        "volcano/volcano-scheduler",
        "volcano/volcano-controllers",
        "volcano/volcano-admission",
        "volcano/webhooks",
        "queues/test/state",
    }
    assert {found[id_].detail for id_ in missing} == {UNREACHABLE}


def test_a_cluster_on_aws_without_volcano_fails_all_of_it() -> None:
    found = judged(_without_volcano)
    assert {check.id for check in found.values() if check.status is CheckStatus.FAIL} == {
        "volcano/volcano-scheduler",
        "volcano/volcano-controllers",
        "volcano/volcano-admission",
        "volcano/webhooks",
        "queues/test/state",
    }
    assert CheckStatus.NOT_INSTALLED not in {check.status for check in found.values()}


def test_simulated_pods_of_volcano_are_not_said_to_run() -> None:
    def spoil(made: Any) -> None:
        made["MutatingWebhookConfiguration"] = made["ValidatingWebhookConfiguration"] = []

    found = judged(spoil, local=SIMULATED)
    assert found["volcano/volcano-scheduler"].detail == "vc-scheduler is not on PATH, so its pods are only simulated"
    for name in ("volcano-scheduler", "volcano-controllers", "volcano-admission", "webhooks"):
        assert found[f"volcano/{name}"].status is CheckStatus.NOT_INSTALLED, name


def test_a_process_of_volcano_that_has_ended_fails_although_its_simulated_pods_are_ready() -> None:
    ended = LocalReport(real_volcano=True, running=REAL.running - {"vc-scheduler"})
    found = judged(local=ended)
    assert found["volcano/volcano-scheduler"].status is CheckStatus.FAIL
    assert found["volcano/volcano-controllers"].status is CheckStatus.PASS
    assert {check.status for check in judged(local=REAL).values()} == {CheckStatus.PASS, CheckStatus.NOT_APPLICABLE}


@pytest.mark.parametrize("name", ["volcano-scheduler", "volcano-controllers", "volcano-admission"])
def test_a_deployment_of_volcano_without_ready_pods_fails(name: str) -> None:
    check = judged(lambda made: the(made, "Deployment", name)["status"].update(availableReplicas=1))[f"volcano/{name}"]
    assert (check.status, check.detail) == (CheckStatus.FAIL, "1 of 2 available")


@pytest.mark.parametrize("kind", ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"])
def test_a_webhook_configuration_that_is_missing_is_named(kind: str) -> None:
    check = judged(lambda made: without(made, kind, made[kind][0]["metadata"]["name"]))["volcano/webhooks"]
    assert check.status is CheckStatus.FAIL
    assert [fault.rpartition(": ")[2] for fault in check.faults] == ["missing"]


def test_a_webhook_without_authority_is_named() -> None:
    def spoil(made: Any) -> None:
        name = "volcano-admission-service-jobs-validate"
        the(made, "ValidatingWebhookConfiguration", name)["webhooks"][0]["clientConfig"] = {}

    assert judged(spoil)["volcano/webhooks"].faults == (
        "volcano-admission-service-jobs-validate: no certificate authority",
    )


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda made: without(made, "Namespace", "training"), "does not exist"),
        (lambda made: the(made, "Namespace", "training")["status"].update(phase="Terminating"), "is Terminating"),
        (lambda made: without(made, "ServiceAccount", "trainer"), "has no service account trainer"),
    ],
)
def test_a_namespace_must_be_active_with_its_service_account(spoil: Callable[[Any], object], said: str) -> None:
    assert judged()["namespaces/training"].status is CheckStatus.PASS
    check = judged(spoil)["namespaces/training"]
    assert check.status is CheckStatus.FAIL
    assert said in check.detail


def test_a_stack_without_queues_and_teams_is_not_said_to_pass() -> None:
    found = judged(stack=outputs(queues={}, queueNames=[], namespaces=[]))
    for id_ in ("queues/all", "namespaces/all", "storage/claims"):
        assert found[id_].status is CheckStatus.NOT_APPLICABLE
