"""Quotas: what a real API server takes, and what a team gets that says nothing."""

from decimal import Decimal

import pytest
from quota_cases import REFUSED, TAKEN, USELESS

from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.sizing import quotas
from trainium_eks.model.sizing.quantities import quantity, shown


@pytest.mark.parametrize(("name", "amount"), TAKEN.items())
def test_what_the_api_server_takes_passes(name: str, amount: str) -> None:
    assert quotas.validate({name: amount}, "quota") == []


@pytest.mark.parametrize(("name", "amount"), [*REFUSED.items(), *USELESS.items()])
def test_what_it_refuses_or_never_counts_is_refused(name: str, amount: str) -> None:
    (problem,) = quotas.validate({name: amount}, "quota")
    assert problem.value == amount


def test_a_part_of_a_pod_is_rounded_up_in_the_fix() -> None:
    (problem,) = quotas.validate({"pods": "1.5"}, "quota")
    assert (problem.path, problem.good) == ("quota.pods", "2")


def test_an_extended_resource_is_named_by_its_requests() -> None:
    for name in ("aws.amazon.com/neuron", "limits.aws.amazon.com/neuron"):
        (problem,) = quotas.validate({name: "64"}, "quota")
        assert problem.fix == "name it requests.aws.amazon.com/neuron"


def test_the_default_bounds_a_backlog_and_not_the_queue_itself() -> None:
    room = {"cpu": "508", "memory": "1800Gi", "pods": "1000"}
    assert quotas.hard({"aws.amazon.com/neuron": 64}, room, {}, claimed_gib=1200) == {
        "requests.cpu": "5080",
        "requests.memory": str(18_000 * 1024**3),
        "pods": "164",
        "count/pods": "656",
        "count/jobs.batch.volcano.sh": "164",
        "count/pytorchjobs.kubeflow.org": "164",
        "count/trainjobs.trainer.kubeflow.org": "164",
        "count/trainingruntimes.trainer.kubeflow.org": "164",
        "services": "264",
        "requests.storage": "2224Gi",
        "fsx.storageclass.storage.k8s.io/persistentvolumeclaims": "0",
        "services.loadbalancers": "0",
        "services.nodeports": "0",
        **{name: str(most) for name, most in quotas.OBJECTS.items()},
    }


def test_what_is_not_known_of_the_nodes_is_not_bounded() -> None:
    hard = quotas.hard({}, {}, {})
    assert hard["pods"] == "500"
    assert not {"requests.cpu", "requests.memory"} & set(hard)


def test_the_default_is_a_good_quota() -> None:
    room = quotas.room([("trn1.32xlarge", 4), ("m6i.xlarge", 2)], CATALOGUE)
    assert quotas.validate(quotas.hard({"aws.amazon.com/neuron": 64}, room, {}, claimed_gib=1200), "quota") == []


def test_a_gang_of_the_whole_pool_has_its_pods() -> None:
    room = quotas.room([("trn1.32xlarge", 1000)], CATALOGUE)
    hard = quotas.hard({"aws.amazon.com/neuron": 16_000}, room, {})
    # One pod a device is the most that ask for any.
    assert int(hard["pods"]) >= 16_000


def test_room_is_that_of_all_nodes() -> None:
    one = CATALOGUE.allocatable("trn1.32xlarge")
    room = quotas.room([("trn1.32xlarge", 3), ("no-such-type", 2), ("trn1.32xlarge", 0)], CATALOGUE)
    assert {name: quantity(amount) for name, amount in room.items()} == {
        name: 3 * (quantity(one[name]) or 0) for name in ("cpu", "memory", "pods")
    }


@pytest.mark.parametrize(("most", "closed"), [("0", ("fsx",)), ("0Ki", ("fsx",)), ("1", ()), ("x", ())])
def test_a_storage_class_without_claims_is_closed(most: str, closed: tuple[str, ...]) -> None:
    hard = {"pods": "0", "fsx.storageclass.storage.k8s.io/persistentvolumeclaims": most}
    assert quotas.closed_storage_classes(hard) == closed


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (16, 16),
        ("-1", -1),
        ("+2", 2),
        ("500m", "0.5"),
        ("1.", 1),
        (".5", "0.5"),
        ("100n", "0.0000001"),
        ("2u", "0.000002"),
        ("1k", 1000),
        ("3M", 3 * 10**6),
        ("1E", 10**18),
        ("1Ki", 1024),
        ("1.5Ti", 3 * 2**39),
        ("1E3", 1000),
        ("5e-1", "0.5"),
    ],
)
def test_a_quantity_is_a_number(text: str | int, number: int | str) -> None:
    assert quantity(text) == Decimal(number)


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1GB", "1K", "1ki", "1Kie3", "1e", "1.2.3", "x", "٣", None, True, 1.5]
)
def test_what_is_none_is_none(text: object) -> None:
    assert quantity(text) is None


@pytest.mark.parametrize(("number", "text"), [("16", "16"), ("1E+3", "1000"), ("0.5", "500m"), ("127.915", "127915m")])
def test_a_number_is_shown_as_a_quantity(number: str, text: str) -> None:
    assert shown(Decimal(number)) == text
    assert quantity(text) == Decimal(number)
