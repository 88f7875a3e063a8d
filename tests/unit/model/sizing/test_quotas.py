"""Quotas: what a real API server takes, and what a team gets that says nothing."""

from decimal import Decimal

import pytest
from quota_cases import REFUSED, TAKEN, USELESS

from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.sizing import quotas
from trainium_eks.model.sizing.quantities import quantity, shown


def test_quota_passes_if_the_api_server_counts_it_and_is_refused_otherwise():
    for name, amount in TAKEN.items():
        assert quotas.validate({name: amount}, "quota") == [], name
    for name, amount in (*REFUSED.items(), *USELESS.items()):
        (problem,) = quotas.validate({name: amount}, "quota")
        assert problem.value == amount
    # The fix rounds a part of a pod up, and names extended resources by their requests.
    (problem,) = quotas.validate({"pods": "1.5"}, "quota")
    assert (problem.path, problem.good) == ("quota.pods", "2")
    for name in ("aws.amazon.com/neuron", "limits.aws.amazon.com/neuron"):
        (problem,) = quotas.validate({name: "64"}, "quota")
        assert problem.fix == "name it requests.aws.amazon.com/neuron"


def test_default_quota_limits_a_backlog_and_not_the_queue():
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


def test_default_quota_is_valid_and_holds_a_gang_of_the_whole_pool():
    hard = quotas.hard({}, {}, {})
    assert hard["pods"] == "500"
    assert not {"requests.cpu", "requests.memory"} & set(hard)
    room = quotas.room([("trn1.32xlarge", 4), ("m6i.xlarge", 2)], CATALOGUE)
    assert quotas.validate(quotas.hard({"aws.amazon.com/neuron": 64}, room, {}, claimed_gib=1200), "quota") == []
    room = quotas.room([("trn1.32xlarge", 1000)], CATALOGUE)
    # One pod a device is the most that ask for any.
    assert int(quotas.hard({"aws.amazon.com/neuron": 16_000}, room, {})["pods"]) >= 16_000
    # Room is that of all nodes.
    one = CATALOGUE.allocatable("trn1.32xlarge")
    room = quotas.room([("trn1.32xlarge", 3), ("no-such-type", 2), ("trn1.32xlarge", 0)], CATALOGUE)
    assert {name: quantity(amount) for name, amount in room.items()} == {
        name: 3 * (quantity(one[name]) or 0) for name in ("cpu", "memory", "pods")
    }


@pytest.mark.parametrize(("most", "closed"), [("0", ("fsx",)), ("0Ki", ("fsx",)), ("1", ()), ("x", ())])
def test_storage_class_with_quota_zero_is_closed(most, closed):
    hard = {"pods": "0", "fsx.storageclass.storage.k8s.io/persistentvolumeclaims": most}
    assert quotas.closed_storage_classes(hard) == closed


def test_quantity_is_parsed_as_the_api_server_does():
    small = {16: 16, "-1": -1, "+2": 2, "500m": "0.5", "1.": 1, ".5": "0.5", "100n": "0.0000001", "5e-1": "0.5"}
    large = {"1k": 1000, "3M": 3 * 10**6, "1E": 10**18, "1Ki": 1024, "1.5Ti": 3 * 2**39, "1E3": 1000, "2u": "0.000002"}
    numbers = {**small, **large}
    assert {text: quantity(text) for text in numbers} == {text: Decimal(each) for text, each in numbers.items()}
    for text in ("", "Gi", "1 Gi", "1GB", "1K", "1ki", "1Kie3", "1e", "1.2.3", "x", "٣", None, True, 1.5):
        assert quantity(text) is None, text
    for number, text in (("16", "16"), ("1E+3", "1000"), ("0.5", "500m"), ("127.915", "127915m")):
        assert shown(Decimal(number)) == text
        assert quantity(text) == Decimal(number)
