"""Transforms, which the engine calls back: in its order, on everything that is registered."""

import asyncio

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pytest
from waiting import SECONDS, out_of_time

from trainium_eks.plan.recording.assumptions import Assumptions
from trainium_eks.plan.recording.program import RecordingError, RecordingTimeoutError


def tagging(mark):
    """Return a transform that adds its mark to the tag `order` of resources with tags."""

    def transform(args):
        if args.type_ not in ("aws:ec2/eip:Eip", "aws:eks/cluster:Cluster"):
            return None
        tags = args.props.get("tags") or {}
        tags = {**tags, "order": tags.get("order", "") + mark}
        return pulumi.ResourceTransformResult({**args.props, "tags": tags}, args.opts)

    return transform


def options(*transforms):
    return pulumi.ResourceOptions(transforms=list(transforms))


def the(graph, type_):
    [found] = graph.of_type(type_)
    return found


def test_transforms_run_from_resource_to_parent_to_stack(record):
    def program():
        aws.ec2.Eip("early")  # what was registered before the stack's transform is left alone
        pulumi.runtime.register_resource_transform(tagging("stack "))
        above = pulumi.ComponentResource("test:index:Building", "b", opts=options(tagging("above ")))
        own = pulumi.ResourceOptions(parent=above)
        outer = pulumi.ComponentResource(
            "test:index:Outer", "o", opts=pulumi.ResourceOptions.merge(options(tagging("parent ")), own)
        )
        own = pulumi.ResourceOptions(parent=outer)
        aws.ec2.Eip("late", opts=pulumi.ResourceOptions.merge(options(tagging("own ")), own))

    tags = {each.name: each.inputs.get("tags") for each in record(program).of_type("aws:ec2/eip:Eip")}
    assert tags == {"early": None, "late": {"order": "own parent above stack "}}


def test_transforms_change_options(record):
    def guarded(args):
        more = pulumi.ResourceOptions(
            protect=True,
            ignore_changes=["tags"],
            retain_on_delete=True,
            delete_before_replace=False,
            custom_timeouts=pulumi.CustomTimeouts(create="9m"),
        )
        return pulumi.ResourceTransformResult(args.props, pulumi.ResourceOptions.merge(args.opts, more))

    def program():
        other = aws.ec2.Eip("other")
        asked = pulumi.ResourceOptions(transforms=[guarded], depends_on=[other], ignore_changes=["domain"])
        aws.ec2.Vpc("v", cidr_block="10.0.0.0/16", opts=asked)

    vpc = the(record(program), "aws:ec2/vpc:Vpc")
    assert (vpc.options.protect, vpc.options.retain_on_delete) == (True, True)
    assert vpc.options.ignore_changes == ("domain", "tags")
    assert vpc.options.custom_timeouts == {"create": "9m"}
    assert [urn.rsplit("::", 1)[-1] for urn in vpc.dependencies] == ["other"]


def test_input_removed_by_a_transform_loses_its_dependency(record):
    def bare(args):
        props = {key: value for key, value in args.props.items() if key != "vpcId"}
        return pulumi.ResourceTransformResult(props, args.opts)

    def program():
        vpc = aws.ec2.Vpc("v", cidr_block="10.0.0.0/16")
        aws.ec2.Subnet("s", vpc_id=vpc.id, cidr_block="10.0.0.0/18", opts=options(bare))

    subnet = the(record(program), "aws:ec2/subnet:Subnet")
    assert set(subnet.inputs) == {"cidrBlock"}
    assert "vpcId" not in subnet.property_dependencies


def test_async_transform_and_legacy_transformations_are_applied(record):
    async def slow(args):
        return pulumi.ResourceTransformResult({**args.props, "tags": {"slow": "yes", **args.props["tags"]}}, args.opts)

    def old(args):
        return pulumi.ResourceTransformationResult({**args.props, "tags": {"old": args.name}}, args.opts)

    def program():
        pulumi.runtime.register_stack_transformation(old)
        aws.ec2.Eip("all", opts=options(slow))

    assert the(record(program), "aws:ec2/eip:Eip").inputs["tags"] == {"old": "all", "slow": "yes"}


def test_transform_reaches_children_of_a_remote_component(record):
    def program():
        pulumi.runtime.register_resource_transform(tagging("stack"))
        eks.Cluster(
            "c",
            service_role="role",
            skip_default_node_group=True,
            skip_default_security_groups=True,
            use_default_vpc_cni=True,
            create_instance_role=False,
            authentication_mode=eks.AuthenticationMode.API,
            coredns_addon_options={"enabled": False},
            kube_proxy_addon_options={"enabled": False},
            subnet_ids=["subnet-1", "subnet-2"],
        )

    assert the(record(program), "aws:eks/cluster:Cluster").inputs["tags"]["order"] == "stack"


def test_transforms_apply_to_look_ups_and_their_errors_are_raised(record):
    def always(args):
        return pulumi.InvokeTransformResult({**args.args, "id": "vpc-changed"}, args.opts)

    def program():
        pulumi.runtime.register_invoke_transform(always)
        pulumi.export("id", aws.ec2.get_vpc(id="vpc-asked").id)

    assert record(program, assumptions=Assumptions()).outputs == {"id": "vpc-changed"}

    def wrong(args):
        raise ValueError(f"not {args.name}")

    with pytest.raises(ValueError, match="not e"):
        record(lambda: aws.ec2.Eip("e", opts=options(wrong)))


async def never(args):
    await asyncio.Event().wait()
    raise AssertionError


def test_hanging_transform_does_not_hang_the_recording(record):
    def attempt(seconds):
        with pytest.raises(RecordingTimeoutError) as caught:
            record(lambda: aws.ec2.Eip("e", opts=options(never)), timeout_seconds=seconds)
        return caught.value.pending

    assert "Eip e" in "".join(out_of_time(attempt, "Eip e"))


def test_failure_is_raised_without_waiting_for_a_transform(record):
    def program():
        aws.ec2.Eip("waits", opts=options(never))
        aws.ivs.Channel("unknown")

    # It would end by its time otherwise, with another error.
    with pytest.raises(RecordingError, match="aws:ivs/channel:Channel"):
        record(program, timeout_seconds=SECONDS)
