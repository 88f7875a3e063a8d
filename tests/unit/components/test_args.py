"""What every component shares: how args are read, and the messages about them."""

import pulumi
import pulumi_aws as aws
import pytest
from unit.components.parts import LEAST

from components import AcceleratorNodeGroup, EncryptionKey
from components._args import ArgumentError, validate_args
from trainium_eks.model.validation.config_model import ConfigModel, StrictInt
from trainium_eks.model.validation.problems import Problem, Severity


class Sample(ConfigModel):
    """Args of nothing."""

    size: StrictInt = 1


def _warns(args):
    return [Problem("size", "rather small", severity=Severity.WARN, value=args.size)]


def test_warning_is_shown_once_a_program(record):
    def program():
        validate_args(Sample, {"size": 1}, _warns, "StrictInt")
        validate_args(Sample, {"size": 1}, _warns, "Part")
        validate_args(Sample, {"size": 2}, _warns, "Other")

    for _ in range(2):
        said = record(program).warnings
        assert [line.split(":")[0] for line in said] == ["Other", "StrictInt"]


class Sized(Sample):
    """Args of which one must be given."""

    unit: str
    spare: StrictInt = 0
    names: tuple[str, ...] = ()


def test_shape_and_value_problems_are_in_one_error():
    def judge(args):
        found = [Problem("names", "a name is empty")] if "" in args.names else []
        if args.spare >= args.size:
            found.append(Problem("spare", "not below size", value=args.spare))
        return found

    for args, paths in (
        ({"size": "two", "spare": 1, "names": [""]}, ["size", "unit", "names"]),
        ({"unit": "GiB", "siez": 2, "spare": 1, "names": [""]}, ["siez", "names", "spare"]),
        ({"unit": 3, "spare": [], "names": [""]}, ["unit", "spare", "names"]),
    ):
        with pytest.raises(ArgumentError, match="Sized s: 3 problems, nothing was built") as caught:
            validate_args(Sized, args, judge, "Sized s")
        assert [each.path for each in caught.value.problems] == paths
        assert len([line for line in str(caught.value).splitlines() if line.startswith("- ")]) == 3


def test_waiver_of_a_rule_accepts_its_problem():
    risky = [Problem("size", "risky", severity=Severity.ACKNOWLEDGE, rule="R29")]
    assert validate_args(Sample, {}, lambda _: risky, "Sample s", waivers={"R29": "a test"}).size == 1
    with pytest.raises(ArgumentError):
        validate_args(Sample, {}, lambda _: risky, "Sample s", waivers={"R28": "another rule"})


def test_accepted_arguments_are_judged_again_only_after_a_change():
    asked = []

    def judge(args):
        asked.append(args.size)
        return []

    once = validate_args(Sample, {"size": 1}, judge, "Sample s")
    assert validate_args(Sample, once, judge, "Sample s") is once
    validate_args(Sample, once.model_copy(), judge, "Sample s")
    assert asked == [1]
    validate_args(Sample, once.model_copy(update={"size": 2}), judge, "Sample s")
    validate_args(Sample, {"size": 1}, judge, "Sample s")
    assert asked == [1, 2, 1]
    # But its name is.
    with pytest.raises(ArgumentError, match="too long"):
        validate_args(Sample, once, judge, "Sample s", naming=lambda _: [Problem("", "too long")])
    # Refused arguments do not count as judged.
    args = Sample()
    for _ in range(2):
        with pytest.raises(ArgumentError):
            validate_args(Sample, args, lambda _: [Problem("size", "too small")], "Sample s")


def account(region):
    return aws.Provider("account", region=region)


def own(region):
    EncryptionKey("k", {"region": "us-west-2"}, pulumi.ResourceOptions(provider=account(region)))


def parents(region):
    component = pulumi.ComponentResource("t:t:T", "t", {}, pulumi.ResourceOptions(providers=[account(region)]))
    AcceleratorNodeGroup("g", LEAST["AcceleratorNodeGroup"], pulumi.ResourceOptions(parent=component))


def default(_region):
    EncryptionKey("k", {"region": "us-west-2"})


@pytest.mark.parametrize("program", [own, parents, default])
def test_region_other_than_the_providers_is_refused(record, program):
    """Of a component's provider, its parent's, and the default one's config."""
    assert record(lambda: program("us-west-2"), config={"aws:region": "us-west-2"}).resources
    with pytest.raises(
        pulumi.RunError, match="`region` is us-west-2, and its AWS provider makes resources in us-east-1"
    ):
        record(lambda: program("us-east-1"), config={"aws:region": "us-east-1"})


def test_name_made_of_an_output_is_refused(record):
    with pytest.raises(ArgumentError, match="name: it holds an Output that was made text"):
        record(lambda: EncryptionKey(f"{pulumi.Output.from_input('k')}", {"region": "us-west-2"}))
