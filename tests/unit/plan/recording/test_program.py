"""A recorded program: the content of its graph, and its refusals."""

import asyncio
import contextvars
import json
import re
import threading

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s
import pytest
from pulumi.runtime import settings
from waiting import SECONDS, out_of_time

from trainium_eks.plan.graph import SECRET, UNKNOWN, Options
from trainium_eks.plan.recording.program import RecordingError, RecordingTimeoutError
from trainium_eks.plan.resource_types.simulation import Simulation


class Pair(pulumi.ComponentResource):
    def __init__(self, name, opts=None):
        super().__init__("test:index:Pair", name, {}, opts)
        own = pulumi.ResourceOptions(parent=self)
        self.first = aws.ec2.Vpc(f"{name}-first", cidr_block="10.0.0.0/16", opts=own)
        self.second = Inner(f"{name}-second", own)
        self.register_outputs({"vpc_id": self.first.id, "token": pulumi.Output.secret("swordfish")})


class Inner(pulumi.ComponentResource):
    def __init__(self, name, opts=None):
        super().__init__("test:index:Inner", name, {}, opts)
        aws.ec2.Eip(f"{name}-eip", opts=pulumi.ResourceOptions(parent=self))
        self.register_outputs({})


def the(graph, type_):
    [found] = graph.of_type(type_)
    return found


def test_whole_numbers_are_ints_and_floats_are_kept(record):
    def program():
        spec = {"whole": 3, "float": 2.5, "list": [1, 0.5], "flag": True, "big": 2**53, "nothing": None}
        k8s.apiextensions.CustomResource("q", api_version="a.b/v1", kind="Q", metadata={"name": "q"}, spec=spec)

    (queue,) = record(program).of_type("kubernetes:a.b/v1:Q")
    spec = queue.inputs["spec"]
    assert spec == {"whole": 3, "float": 2.5, "list": [1, 0.5], "flag": True, "big": 2**53, "nothing": None}
    assert [type(spec[key]) for key in ("whole", "float", "flag", "big")] == [int, float, bool, int]


def test_recording_contains_no_secret(record):
    def program():
        secret = pulumi.Output.secret("hunter2-hunter2")
        metadata = {"name": "s", "annotations": {"nested": secret}}
        made = k8s.core.v1.Secret("s", metadata=metadata, string_data={"key": "hunter2-hunter2"})
        k8s.core.v1.ConfigMap("c", data=made.string_data)  # it stays secret on its way into another resource
        aws.ec2.Vpc("v", cidr_block="10.0.0.0/16", tags={"joined": pulumi.Output.concat("pre-", secret)})
        pulumi.export("data", made.string_data)
        pulumi.export("concat", pulumi.Output.concat("x", secret))
        pulumi.export("inside", {"deep": [secret]})
        pulumi.log.warn("the password is hunter2-hunter2")
        pulumi.export("config", pulumi.Config().require_secret("password"))

    graph = record(program, config={"password": "hunter2-hunter2"}, secret_keys=["password"])
    assert "hunter2" not in json.dumps(graph.to_json())
    inputs = the(graph, "kubernetes:core/v1:Secret").inputs
    assert inputs["metadata"] == {"name": "s", "annotations": {"nested": SECRET}}
    assert (inputs["stringData"], graph.outputs["concat"], graph.config) == (SECRET, SECRET, {"password": SECRET})
    assert the(graph, "kubernetes:core/v1:ConfigMap").inputs["data"] == SECRET
    assert graph.warnings == (f"the password is {SECRET}",)


def test_explicit_provider_is_recorded_with_its_region(record):
    def program():
        provider = aws.Provider("aws", region="eu-west-1", default_tags={"tags": {"Owner": "me"}})
        aws.ec2.Vpc("net", tags={"Name": "net"}, opts=pulumi.ResourceOptions(provider=provider))
        aws.kms.Key("without")

    graph = record(program, config={"aws:region": "cn-north-1"})
    vpc, key = the(graph, "aws:ec2/vpc:Vpc"), the(graph, "aws:kms/key:Key")
    assert (vpc.provider, key.provider) == (the(graph, "pulumi:providers:aws").urn, "")
    assert str(vpc.outputs["arn"]).startswith("arn:aws:ec2:eu-west-1:000000000000:vpc/vpc-sim-")
    assert vpc.outputs["tagsAll"] == {"Owner": "me", "Name": "net"}
    assert str(key.outputs["arn"]).startswith("arn:aws-cn:kms:cn-north-1:"), "the default region is the config's"


def test_every_option_is_recorded(record):
    def program():
        options = pulumi.ResourceOptions(
            protect=True,
            retain_on_delete=True,
            delete_before_replace=True,
            deleted_with=aws.ec2.Eip("other"),
            ignore_changes=["cidr_block"],
            replace_on_changes=["tags"],
            additional_secret_outputs=["arn"],
            aliases=[pulumi.Alias(name="old", parent=pulumi.ROOT_STACK_RESOURCE), "urn:pulumi:a::b::c::d"],
            custom_timeouts=pulumi.CustomTimeouts(create="30m", delete="1h"),
            import_="vpc-123",
            version="7.0.0",
        )
        aws.ec2.Vpc("v", cidr_block="10.0.0.0/16", opts=options)

    graph = record(program)
    vpc = the(graph, "aws:ec2/vpc:Vpc")
    assert vpc.options == Options(
        protect=True,
        retain_on_delete=True,
        delete_before_replace=True,
        deleted_with=the(graph, "aws:ec2/eip:Eip").urn,
        ignore_changes=("cidrBlock",),
        replace_on_changes=("tags",),
        additional_secret_outputs=("arn",),
        aliases=("name=old no-parent=true", "urn:pulumi:a::b::c::d"),
        custom_timeouts={"create": "30m", "delete": "1h"},
        import_id="vpc-123",
        version="7.0.0",
    )
    assert (vpc.outputs["id"], vpc.outputs["arn"]) == ("vpc-123", SECRET)


def test_component_options_reach_its_children_and_its_outputs_are_recorded(record):
    def program():
        other = aws.ec2.Eip("other")
        Pair("p", pulumi.ResourceOptions(protect=True, retain_on_delete=True, deleted_with=other))

    graph = record(program)
    other, eip = sorted(graph.of_type("aws:ec2/eip:Eip"), key=lambda each: each.name)
    for child in (the(graph, "aws:ec2/vpc:Vpc"), eip):
        found = child.options
        assert (found.protect, found.retain_on_delete, found.deleted_with) == (True, True, other.urn)
    assert not other.options.retain_on_delete
    pair = the(graph, "test:index:Pair")
    assert (pair.custom, pair.outputs["token"]) == (False, SECRET)
    assert str(pair.outputs["vpc_id"]).startswith("vpc-sim-")


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        (aws.get_caller_identity, r"aws:index/getCallerIdentity:getCallerIdentity.*look-ups are not allowed here"),
        (lambda: aws.ec2.Vpc.get("v", "vpc-1"), r"aws:ec2/vpc:Vpc v.*look-ups are not allowed here"),
        (lambda: aws.ivs.Channel("q"), r"aws:ivs/channel:Channel is not simulated.*plan/resource_types/rows"),
        (lambda: [aws.ec2.Eip("same") for _ in range(2)],
         r"two resources have the URN .*Eip::same.*test_program\.py:\d+"),
        (lambda: aws.ec2.LaunchTemplate("l", network_interfaces=[{"device_index": 0, "card": 1}]),
         r"networkInterfaces\[0\]\.card: there is no such input"),
        (lambda: k8s.core.v1.Namespace("n", metadata={"name": "n", "lables": {}}),
         r"metadata\.lables: .*did you mean 'labels'"),
        (lambda: aws.ec2.Subnet("s", vpc_id=f"{aws.ec2.Eip('e').id}", cidr_block="10.0.0.0/24"),
         r"vpcId: it holds an Output that was made text.*test_program\.py:\d+"),
        (lambda: pulumi.export("x", f"{aws.ec2.Eip('e').id}"), r"output x: it holds an Output that was made text"),
    ],
)  # fmt: skip
def test_unrecordable_program_is_refused(record, program, fault):
    with pytest.raises(RecordingError) as caught:
        record(program)
    assert re.search(fault, str(caught.value), re.DOTALL)


def test_kustomization_is_recorded_with_a_warning_for_its_objects(record):
    graph = record(lambda: k8s.kustomize.v2.Directory("d", directory="https://example.com/x?ref=v1"))
    assert the(graph, "kubernetes:kustomize/v2:Directory").name == "d"
    assert graph.warnings == ("d: the objects of kubernetes:kustomize/v2:Directory are not in the plan",)


def test_hanging_resource_is_named_with_its_dependency(record):
    released = threading.Event()

    class Stuck(Simulation):
        def create(self, registration):
            released.wait(SECONDS)
            return super().create(registration)

    def program():
        never = asyncio.get_event_loop().create_future()
        aws.ec2.Eip("e")
        aws.ec2.Vpc("v", cidr_block=pulumi.Output.from_input(never))
        pulumi.export("stuck", pulumi.Output.from_input(never))

    def attempt(seconds):
        with pytest.raises(RecordingTimeoutError) as caught:
            record(program, timeout_seconds=seconds, backend=Stuck())
        return caught.value.pending

    try:
        found = out_of_time(attempt, "exports")
    finally:
        released.set()
    waits = {"aws:ec2/vpc:Vpc v (waiting for: cidr_block)", "exports (waiting for: stuck)"}
    assert {"aws:ec2/eip:Eip e (being created)", *waits} <= set(found)


@pytest.mark.slow
def test_progressing_program_may_exceed_the_limit(record):
    """Each of its steps is longer than a look, and all together than the limit."""
    limit = 5.0

    async def slow(text):
        # Many tasks, so that a machine that stalls for a while lets some of them end between two looks.
        for _ in range(80):
            await asyncio.gather(asyncio.sleep(limit / 60))
        return text

    def program():
        log = aws.cloudwatch.LogGroup("log", name=pulumi.Output.from_input(slow("log")))
        pulumi.export("log", log.name)

    assert record(program, timeout_seconds=limit).outputs == {"log": "log"}


def test_programs_exception_is_raised_unchanged_and_leaves_no_state(record):
    def program():
        aws.ec2.Eip("e").id.apply(lambda text: text[999])

    with pytest.raises(IndexError):
        record(program)
    with pytest.raises(pulumi.RunError, match="no"):
        record(lambda: (_ for _ in ()).throw(pulumi.RunError("no")))
    before = (pulumi.get_stack(), pulumi.get_project(), pulumi.runtime.get_root_resource())
    with pytest.raises(RecordingError):
        record(lambda: aws.ivs.Channel("q"), dry_run=True, config={"region": "x"})
    assert (pulumi.get_stack(), pulumi.get_project(), pulumi.runtime.get_root_resource()) == before
    graph = record(lambda: pulumi.export("region", pulumi.Config().get("region") or "none"))
    assert graph.outputs == {"region": "none"}
    assert len(graph.resources) == 1


def test_active_stack_of_another_run_does_not_interfere(record):
    def with_a_root():
        settings.ROOT.set(Pair.__new__(Pair))
        return record(lambda: pulumi.export("a", 1))

    assert contextvars.copy_context().run(with_a_root).outputs == {"a": 1}


def test_custom_backend_sees_secrets_and_answers_creations(record):
    seen = []

    class Live:
        def create(self, registration):
            seen.append(registration)
            return "the-id", {"arn": "the-arn"}

        def simulates(self, type_):
            return type_ == "nothing"

    def program():
        pulumi.export("arn", aws.ec2.Vpc("v", cidr_block=pulumi.Output.secret("10.0.0.0/16")).arn)

    graph = record(program, backend=Live())
    assert seen[0].inputs["cidrBlock"] == "10.0.0.0/16"
    assert (graph.outputs, graph.simulated) == ({"arn": "the-arn"}, ())


def test_dry_run_knows_only_the_given_inputs(record):
    def program():
        vpc = aws.ec2.Vpc("v", cidr_block="10.0.0.0/16")
        aws.ec2.Subnet("s", vpc_id=vpc.id, cidr_block="10.0.0.0/24")
        pulumi.export("cidr", vpc.cidr_block)
        pulumi.export("id", vpc.id)
        pulumi.export("applied", vpc.arn.apply(lambda arn: arn.upper()))

    graph, real = record(program, dry_run=True), record(program)
    assert graph.outputs == {"cidr": "10.0.0.0/16", "id": UNKNOWN, "applied": UNKNOWN}
    assert the(graph, "aws:ec2/subnet:Subnet").inputs == {"vpcId": UNKNOWN, "cidrBlock": "10.0.0.0/24"}
    for each, other in zip(real.resources, graph.resources, strict=True):
        assert (each.urn, each.options, each.dependencies) == (other.urn, other.options, other.dependencies)


def cluster(**changes):
    arguments = {
        "service_role": "r",
        "name": "trn",
        "vpc_id": "vpc-1",
        "private_subnet_ids": ["subnet-1"],
        "authentication_mode": eks.AuthenticationMode.API,
        "skip_default_node_group": True,
        "skip_default_security_groups": True,
        "create_instance_role": False,
        "use_default_vpc_cni": True,
        "coredns_addon_options": {"enabled": False},
        "kube_proxy_addon_options": {"enabled": False},
        "create_oidc_provider": False,
    }
    return eks.Cluster("c", **{**arguments, **changes})


def test_attributes_of_the_eks_cluster_can_be_lifted(record):
    def program():
        made = cluster()
        lifted = made.eks_cluster
        pulumi.export("endpoints", [lifted.endpoint, made.core.endpoint])
        pulumi.export("groups", [lifted.vpc_config.cluster_security_group_id, made.cluster_security_group_id])
        pulumi.export("certificate", lifted.certificate_authority.data)
        pulumi.export("kubeconfig", made.kubeconfig_json)
        aws.eks.Addon("a", cluster_name=lifted.name, addon_name="vpc-cni")

    graph = record(program)
    (endpoint, core), groups = graph.outputs["endpoints"], graph.outputs["groups"]
    assert (endpoint[:11], core) == ("https://SIM", endpoint)
    assert groups[0] == groups[1] != ""
    kubeconfig = json.loads(graph.outputs["kubeconfig"])
    assert graph.outputs["certificate"]
    assert kubeconfig["clusters"][0]["cluster"]["server"] == endpoint
    assert kubeconfig["users"][0]["user"]["exec"]["args"][:2] == ["--region", "us-west-2"]
    addon = the(graph, "aws:eks/addon:Addon")
    assert addon.inputs["clusterName"] == "trn"
    assert the(graph, "aws:eks/cluster:Cluster").urn in addon.dependencies
    preview = record(program, dry_run=True).outputs
    assert preview["endpoints"] == preview["groups"] == [UNKNOWN, UNKNOWN]
    assert preview["kubeconfig"] == preview["certificate"] == UNKNOWN


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"skip_default_node_group": None}, "skipDefaultNodeGroup must be true"),
        ({"coredns_addon_options": None}, r"corednsAddonOptions must be \{enabled: false\}"),
        ({"create_oidc_provider": True}, "createOidcProvider must be left out"),
        ({"authentication_mode": None}, "authenticationMode must be API"),
        ({"service_role": None}, "serviceRole must be given"),
        ({"instance_roles": ["arn:aws:iam::000000000000:role/r"]}, "instanceRoles must be left out"),
        ({"auto_mode": {"enabled": True}}, "autoMode must be left out"),
    ],
)
def test_eks_cluster_with_unknown_options_is_recorded_alone(record, changes, fault):
    with pytest.raises(RecordingError, match=fault):
        record(lambda: cluster(**changes))
    ran = []

    def program():
        made = cluster(**changes)
        made.kubeconfig.apply(ran.append)
        pulumi.export("name", made.eks_cluster.name)

    graph = record(program, foreign=True)
    [alone] = graph.not_simulated
    assert (alone.name, graph.children(alone.urn), graph.outputs["name"], ran) == ("c", (), UNKNOWN, [])
