"""What a plan says of what grows by itself."""

from types import SimpleNamespace

from rule_programs import environment

from trainium_eks.cli.shared import plan_page
from trainium_eks.plan import autoscaling
from trainium_eks.plan.autoscaling import NO_GANGS, OVER_BUYS, PARTIAL, Autoscaling, ScaledPool
from trainium_eks.plan.graph import Graph

CPU = ScaledPool("cpu", "Cluster Autoscaler", 0, 4, "m6i.xlarge", "cpu")
TRN1 = ScaledPool("trn1", "Cluster Autoscaler", 0, 4, "trn1.32xlarge", "neuron")


def shown(found: Autoscaling) -> str:
    return "\n".join(plan_page._autoscaling(SimpleNamespace(autoscaling=found)))  # type: ignore[arg-type]


def test_a_group_that_is_served_is_named_with_its_bounds() -> None:
    found = autoscaling.read(environment().graph())
    assert found is not None
    assert [(each.pool, each.minimum, each.maximum, each.by) for each in found.pools] == [
        ("base", 0, 4, "Cluster Autoscaler"),
        ("karpenter", 0, 2, "Karpenter"),
        ("trn1n", 0, 1, "Karpenter"),
    ]
    assert "base: 0 to 4 × trn1.32xlarge, by Cluster Autoscaler" in shown(found)


def test_nothing_is_said_where_nothing_grows() -> None:
    program = environment()
    program.drop("autoscaler-release", "karpenter-karpenter", "karpenter-trn1n")
    assert autoscaling.read(program.graph()) is None
    assert autoscaling.read(Graph("p", "s", (), {})) is None


def test_what_gangs_must_know_is_said_where_there_are_accelerators() -> None:
    assert Autoscaling((CPU,)).limits == ()
    assert Autoscaling((CPU, TRN1)).limits == (NO_GANGS, OVER_BUYS, PARTIAL)
    assert OVER_BUYS not in Autoscaling((ScaledPool("p5", "Cluster Autoscaler", 0, 4, "p5.48xlarge", "nvidia"),)).limits
    assert PARTIAL in shown(Autoscaling((TRN1,)))


def test_its_json_has_pools_and_limits() -> None:
    data = Autoscaling((TRN1,)).to_json()
    assert data["pools"] == [
        {"pool": "trn1", "by": "Cluster Autoscaler", "minimum": 0, "maximum": 4, "instanceType": "trn1.32xlarge"}
    ]
    assert data["limits"] == [NO_GANGS, OVER_BUYS, PARTIAL]
