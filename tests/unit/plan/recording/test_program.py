"""A recorded program: what reaches the graph, and what is refused."""

import asyncio
import contextvars
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s
import pytest
from pulumi.runtime import settings
from waiting import SECONDS, out_of_time

from trainium_eks.plan.backend import Registration
from trainium_eks.plan.graph import SECRET, UNKNOWN, Graph
from trainium_eks.plan.recording.program import RecordingError, RecordingTimeoutError
from trainium_eks.plan.resource_types.simulation import Simulation

Record = Callable[..., Graph]


class Pair(pulumi.ComponentResource):
    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("test:index:Pair", name, {}, opts)
        own = pulumi.ResourceOptions(parent=self)
        self.first = aws.ec2.Vpc(f"{name}-first", cidr_block="10.0.0.0/16", opts=own)
        self.second = Inner(f"{name}-second", own)
        self.register_outputs({"vpc_id": self.first.id, "token": pulumi.Output.secret("swordfish")})


class Inner(pulumi.ComponentResource):
    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("test:index:Inner", name, {}, opts)
        aws.ec2.Eip(f"{name}-eip", opts=pulumi.ResourceOptions(parent=self))
        self.register_outputs({})


def a_bit_of_everything() -> None:
    provider = aws.Provider("aws", region="eu-west-1", default_tags={"tags": {"Owner": "me"}})
    given = pulumi.ResourceOptions(provider=provider)
    vpc = aws.ec2.Vpc("net", cidr_block="10.0.0.0/16", tags={"Name": "net"}, opts=given)
    for zone in ("euw1-az1", "euw1-az2", "euw1-az3"):
        aws.ec2.Subnet(zone, vpc_id=vpc.id, availability_zone_id=zone, cidr_block="10.0.0.0/18", opts=given)
    Pair("pair")
    pulumi.log.warn("careful")
    pulumi.export("vpc", vpc.id)
    vpc.arn.apply(lambda arn: pulumi.export("later", arn))


def test_exports_are_recorded_also_those_made_in_an_apply(record: Record) -> None:
    def program() -> None:
        vpc = aws.ec2.Vpc("v", cidr_block="10.0.0.0/16")
        pulumi.export("given", vpc.cidr_block)
        pulumi.export("nested", {"list": [vpc.id.apply(lambda _: 2.5), 3]})

    assert record(program).outputs == {"given": "10.0.0.0/16", "nested": {"list": [2.5, 3]}}


def test_outputs_of_components_are_recorded_and_their_secrets_masked(record: Record) -> None:
    (pair,) = record(lambda: Pair("p")).of_type("test:index:Pair")
    assert pair.custom is False
    assert pair.outputs["token"] == SECRET
    assert str(pair.outputs["vpc_id"]).startswith("vpc-sim-")


def test_whole_numbers_are_ints_and_genuine_floats_stay(record: Record) -> None:
    def program() -> None:
        spec = {"whole": 3, "float": 2.5, "list": [1, 0.5], "flag": True, "big": 2**53, "nothing": None}
        k8s.apiextensions.CustomResource("q", api_version="a.b/v1", kind="Q", metadata={"name": "q"}, spec=spec)

    (queue,) = record(program).of_type("kubernetes:a.b/v1:Q")
    spec = queue.inputs["spec"]
    assert spec == {"whole": 3, "float": 2.5, "list": [1, 0.5], "flag": True, "big": 2**53, "nothing": None}
    assert [type(spec[key]) for key in ("whole", "float", "flag", "big")] == [int, float, bool, int]


def test_secrets_appear_nowhere(record: Record) -> None:
    def program() -> None:
        secret = pulumi.Output.secret("hunter2-hunter2")
        metadata = {"name": "s", "annotations": {"nested": secret}}
        made = k8s.core.v1.Secret("s", metadata=metadata, string_data={"key": "hunter2-hunter2"})
        aws.ec2.Vpc("v", cidr_block="10.0.0.0/16", tags={"joined": pulumi.Output.concat("pre-", secret)})
        pulumi.export("data", made.string_data)
        pulumi.export("concat", pulumi.Output.concat("x", secret))
        pulumi.export("inside", {"deep": [secret]})
        pulumi.log.warn("the password is hunter2-hunter2")
        pulumi.export("config", pulumi.Config().require_secret("password"))

    graph = record(program, config={"password": "hunter2-hunter2"}, secret_keys=["password"])
    text = json.dumps(graph.to_json())
    assert "hunter2" not in text
    (made,) = graph.of_type("kubernetes:core/v1:Secret")
    assert made.inputs["metadata"] == {"name": "s", "annotations": {"nested": SECRET}}
    assert made.inputs["stringData"] == SECRET
    assert graph.outputs["concat"] == SECRET
    assert graph.config == {"password": SECRET}
    assert graph.warnings == (f"the password is {SECRET}",)


def test_an_output_stays_secret_on_its_way_into_another_resource(record: Record) -> None:
    def program() -> None:
        secret = k8s.core.v1.Secret("s", metadata={"name": "s"}, string_data={"key": "hunter2-hunter2"})
        k8s.core.v1.ConfigMap("c", data=secret.string_data)

    (config_map,) = record(program).of_type("kubernetes:core/v1:ConfigMap")
    assert config_map.inputs["data"] == SECRET


def test_dependencies_and_property_dependencies_are_recorded(record: Record) -> None:
    def program() -> None:
        vpc = aws.ec2.Vpc("v", cidr_block="10.0.0.0/16")
        other = aws.ec2.Eip("e")
        aws.ec2.Subnet("s", vpc_id=vpc.id, cidr_block="10.0.0.0/24", opts=pulumi.ResourceOptions(depends_on=[other]))

    graph = record(program)
    (vpc,), (eip,) = graph.of_type("aws:ec2/vpc:Vpc"), graph.of_type("aws:ec2/eip:Eip")
    (subnet,) = graph.of_type("aws:ec2/subnet:Subnet")
    assert subnet.dependencies == tuple(sorted((vpc.urn, eip.urn)))
    assert subnet.property_dependencies["vpcId"] == (vpc.urn,)
    assert subnet.inputs["vpcId"] == vpc.outputs["id"]


def test_the_explicit_provider_is_recorded_and_gives_the_region(record: Record) -> None:
    graph = record(a_bit_of_everything)
    (provider,) = graph.of_type("pulumi:providers:aws")
    vpc = next(vpc for vpc in graph.of_type("aws:ec2/vpc:Vpc") if vpc.name == "net")
    assert vpc.provider == provider.urn
    assert str(vpc.outputs["arn"]).startswith("arn:aws:ec2:eu-west-1:000000000000:vpc/vpc-sim-")
    assert vpc.outputs["tagsAll"] == {"Owner": "me", "Name": "net"}
    without = next(vpc for vpc in graph.of_type("aws:ec2/vpc:Vpc") if vpc.name == "pair-first")
    assert without.provider == ""


def test_the_default_region_is_the_configs(record: Record) -> None:
    def program() -> None:
        aws.kms.Key("k")

    (key,) = record(program, config={"aws:region": "cn-north-1"}).of_type("aws:kms/key:Key")
    assert str(key.outputs["arn"]).startswith("arn:aws-cn:kms:cn-north-1:")


def test_every_option_is_recorded(record: Record) -> None:
    def program() -> None:
        other = aws.ec2.Eip("other")
        aws.ec2.Vpc(
            "v",
            cidr_block="10.0.0.0/16",
            opts=pulumi.ResourceOptions(
                protect=True,
                retain_on_delete=True,
                delete_before_replace=True,
                deleted_with=other,
                ignore_changes=["cidr_block"],
                replace_on_changes=["tags"],
                additional_secret_outputs=["arn"],
                aliases=[pulumi.Alias(name="old", parent=pulumi.ROOT_STACK_RESOURCE), "urn:pulumi:a::b::c::d"],
                custom_timeouts=pulumi.CustomTimeouts(create="30m", delete="1h"),
                import_="vpc-123",
                version="7.0.0",
            ),
        )

    graph = record(program)
    (vpc,), (other,) = graph.of_type("aws:ec2/vpc:Vpc"), graph.of_type("aws:ec2/eip:Eip")
    options = vpc.options
    assert (options.protect, options.retain_on_delete, options.delete_before_replace) == (True, True, True)
    assert options.deleted_with == other.urn
    assert options.ignore_changes == ("cidrBlock",)
    assert options.replace_on_changes == ("tags",)
    assert options.additional_secret_outputs == ("arn",)
    assert options.aliases == ("name=old no-parent=true", "urn:pulumi:a::b::c::d")
    assert options.custom_timeouts == {"create": "30m", "delete": "1h"}
    assert (options.import_id, options.version) == ("vpc-123", "7.0.0")
    assert vpc.outputs["id"] == "vpc-123"
    assert vpc.outputs["arn"] == SECRET


def test_options_that_the_engine_hands_down_reach_the_children(record: Record) -> None:
    def program() -> None:
        other = aws.ec2.Eip("other")
        Pair("p", pulumi.ResourceOptions(protect=True, retain_on_delete=True, deleted_with=other))

    graph = record(program)
    eips = {eip.name: eip for eip in graph.of_type("aws:ec2/eip:Eip")}
    (vpc,) = graph.of_type("aws:ec2/vpc:Vpc")
    for child in (vpc, eips["p-second-eip"]):
        assert child.options.protect
        assert child.options.retain_on_delete
        assert child.options.deleted_with == eips["other"].urn
    assert not eips["other"].options.retain_on_delete


def test_a_duplicate_urn_is_refused_with_its_place(record: Record) -> None:
    def program() -> None:
        aws.ec2.Eip("same")
        aws.ec2.Eip("same")

    with pytest.raises(RecordingError, match=r"two resources have the URN .*Eip::same.*test_program\.py:\d+"):
        record(program)


@pytest.mark.parametrize(
    ("program", "token"),
    [
        (aws.get_caller_identity, "aws:index/getCallerIdentity:getCallerIdentity"),
        (lambda: pulumi.export("r", aws.get_region_output().region), "aws:index/getRegion:getRegion"),
        (lambda: aws.ec2.Vpc.get("v", "vpc-1"), "aws:ec2/vpc:Vpc v"),
    ],
)
def test_a_look_up_is_refused_by_its_token(record: Record, program: Callable[[], Any], token: str) -> None:
    with pytest.raises(RecordingError, match="look-ups are not allowed here") as caught:
        record(program)
    assert token in str(caught.value)


def test_an_unknown_type_is_refused_with_the_folder_of_rows(record: Record) -> None:
    with pytest.raises(RecordingError, match=r"aws:ivs/channel:Channel is not simulated.*plan/resource_types/rows"):
        record(lambda: aws.ivs.Channel("q"))


def test_a_kustomization_is_recorded_with_a_warning_that_its_objects_are_not(record: Record) -> None:
    graph = record(lambda: k8s.kustomize.v2.Directory("d", directory="https://example.com/x?ref=v1"))
    assert [found.name for found in graph.of_type("kubernetes:kustomize/v2:Directory")] == ["d"]
    assert graph.warnings == ("d: the objects of kubernetes:kustomize/v2:Directory are not in the plan",)


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        (
            lambda: aws.eks.NodeGroup(
                "n", cluster_name="c", node_role_arn="r", subnet_ids=["s"], scaling_config={"min_sise": 1}
            ),
            r"scalingConfig\.min_sise: .*did you mean 'minSize'",
        ),
        (
            lambda: aws.ec2.LaunchTemplate("l", network_interfaces=[{"device_index": 0, "card": 1}]),
            r"networkInterfaces\[0\]\.card: there is no such input",
        ),
        (
            lambda: k8s.core.v1.Namespace("n", metadata={"name": "n", "lables": {}}),
            r"metadata\.lables: .*did you mean 'labels'",
        ),
    ],
)
def test_an_input_that_the_sdk_does_not_know_is_refused(record: Record, program: Callable[[], Any], fault: str) -> None:
    with pytest.raises(RecordingError, match=fault):
        record(program)


def pending(record: Record, program: Callable[[], object], told: str, **options: Any) -> tuple[str, ...]:
    """What a program waits for that does not end; ``told`` is in it when the program has come so far."""

    def attempt(seconds: float) -> tuple[str, ...]:
        with pytest.raises(RecordingTimeoutError) as caught:
            record(program, timeout_seconds=seconds, **options)
        return caught.value.pending

    return out_of_time(attempt, told)


def test_what_hangs_is_named_with_what_it_waits_for(record: Record) -> None:
    def program() -> None:
        never: asyncio.Future[str] = asyncio.get_event_loop().create_future()
        aws.ec2.Vpc("v", cidr_block=pulumi.Output.from_input(never))
        pulumi.export("stuck", pulumi.Output.from_input(never))

    found = pending(record, program, "exports")
    assert "aws:ec2/vpc:Vpc v (waiting for: cidr_block)" in found
    assert "exports (waiting for: stuck)" in found


def test_what_a_backend_does_not_answer_is_named(record: Record) -> None:
    released = threading.Event()

    class Stuck(Simulation):
        def create(self, registration: Registration) -> tuple[str, dict[str, Any]]:
            released.wait(SECONDS)
            return super().create(registration)

    try:
        found = pending(record, lambda: aws.ec2.Eip("e"), "being created", backend=Stuck())
    finally:
        released.set()
    assert found == ("aws:ec2/eip:Eip e (being created)",)


def test_the_programs_own_error_comes_out_as_it_is(record: Record) -> None:
    def program() -> None:
        aws.ec2.Eip("e").id.apply(lambda text: text[999])

    with pytest.raises(IndexError):
        record(program)
    with pytest.raises(pulumi.RunError, match="no"):
        record(lambda: (_ for _ in ()).throw(pulumi.RunError("no")))


def test_nothing_is_left_behind_for_the_next_recording(record: Record) -> None:
    before = (pulumi.get_stack(), pulumi.get_project(), pulumi.runtime.get_root_resource())
    with pytest.raises(RecordingError):
        record(lambda: aws.ivs.Channel("q"), dry_run=True, config={"region": "x"})
    assert (pulumi.get_stack(), pulumi.get_project(), pulumi.runtime.get_root_resource()) == before
    graph = record(lambda: pulumi.export("region", pulumi.Config().get("region") or "none"))
    assert graph.outputs == {"region": "none"}
    assert len(graph.resources) == 1


def test_a_stack_that_someone_else_left_active_is_no_obstacle(record: Record) -> None:
    def with_a_root() -> Graph:
        settings.ROOT.set(Pair.__new__(Pair))
        return record(lambda: pulumi.export("a", 1))

    assert contextvars.copy_context().run(with_a_root).outputs == {"a": 1}


def test_config_reaches_the_program_and_the_graph(record: Record) -> None:
    def program() -> None:
        config = pulumi.Config()
        pulumi.export("groups", config.require_object("nodeGroups"))
        pulumi.export("region", pulumi.Config("aws").require("region"))

    config = {"nodeGroups": '[{"name": "a", "maxSize": 2}]', "owner": "123", "aws:region": "us-east-1"}
    graph = record(program, config=config)
    assert graph.outputs == {"groups": [{"name": "a", "maxSize": 2}], "region": "us-east-1"}
    assert graph.config == {"nodeGroups": [{"name": "a", "maxSize": 2}], "owner": "123"}


def test_a_backend_of_ones_own_sees_secrets_in_clear_and_answers(record: Record) -> None:
    seen: list[Registration] = []

    class Live:
        def create(self, registration: Registration) -> tuple[str, Mapping[str, Any]]:
            seen.append(registration)
            return "the-id", {"arn": "the-arn"}

        def simulates(self, type_: str) -> bool:
            return type_ == "nothing"

    def program() -> None:
        vpc = aws.ec2.Vpc("v", cidr_block=pulumi.Output.secret("10.0.0.0/16"))
        pulumi.export("arn", vpc.arn)

    graph = record(program, backend=Live())
    assert seen[0].inputs["cidrBlock"] == "10.0.0.0/16"
    assert graph.outputs == {"arn": "the-arn"}
    assert graph.simulated == ()


def test_in_a_dry_run_only_what_is_given_is_known(record: Record) -> None:
    def program() -> None:
        vpc = aws.ec2.Vpc("v", cidr_block="10.0.0.0/16")
        aws.ec2.Subnet("s", vpc_id=vpc.id, cidr_block="10.0.0.0/24")
        pulumi.export("cidr", vpc.cidr_block)
        pulumi.export("id", vpc.id)
        pulumi.export("applied", vpc.arn.apply(lambda arn: arn.upper()))

    graph = record(program, dry_run=True)
    assert graph.outputs == {"cidr": "10.0.0.0/16", "id": UNKNOWN, "applied": UNKNOWN}
    (subnet,) = graph.of_type("aws:ec2/subnet:Subnet")
    assert subnet.inputs == {"vpcId": UNKNOWN, "cidrBlock": "10.0.0.0/24"}
    real = record(program)
    assert [(r.urn, r.options, r.dependencies) for r in real.resources] == [
        (r.urn, r.options, r.dependencies) for r in graph.resources
    ]


# --- pulumi_eks.Cluster -------------------------------------------------------------------------------------------


def cluster(**changes: Any) -> eks.Cluster:
    provider = aws.Provider("aws", region="us-west-2")
    subnet = aws.ec2.Subnet("s", vpc_id="vpc-1", cidr_block="10.0.0.0/18")
    arguments: dict[str, Any] = {
        "service_role": aws.iam.Role("r", assume_role_policy="{}"),
        "name": "trn",
        "version": "1.35",
        "vpc_id": "vpc-1",
        "private_subnet_ids": [subnet.id],
        "authentication_mode": eks.AuthenticationMode.API,
        "skip_default_node_group": True,
        "skip_default_security_groups": True,
        "create_instance_role": False,
        "use_default_vpc_cni": True,
        "coredns_addon_options": {"enabled": False},
        "kube_proxy_addon_options": {"enabled": False},
        "create_oidc_provider": False,
        "encryption_config_key_arn": "arn:aws:kms:us-west-2:000000000000:key/k",
        "endpoint_private_access": True,
        "cluster_tags": {"team": "a"},
        "deletion_protection": True,
    }
    opts = pulumi.ResourceOptions(providers=[provider], protect=True)
    return eks.Cluster("c", **{**arguments, **changes}, opts=opts)


def test_the_eks_clusters_children_are_recorded(record: Record) -> None:
    graph = record(cluster)
    (component,) = graph.of_type("eks:index:Cluster")
    (made,) = graph.of_type("aws:eks/cluster:Cluster")
    (provider,), (subnet,) = graph.of_type("pulumi:providers:aws"), graph.of_type("aws:ec2/subnet:Subnet")
    (role,) = graph.of_type("aws:iam/role:Role")
    assert made.urn == component.urn.replace("::c", "$aws:eks/cluster:Cluster::c-eksCluster")
    assert (made.parent, made.provider, made.options.protect) == (component.urn, provider.urn, True)
    assert made.inputs["vpcConfig"] == {"subnetIds": [subnet.outputs["id"]], "endpointPrivateAccess": True}
    assert made.inputs["accessConfig"]["authenticationMode"] == "API"
    assert made.inputs["encryptionConfig"]["resources"] == ["secrets"]
    assert made.inputs["tags"] == {"Name": "c-eksCluster", "team": "a"}
    assert made.inputs["roleArn"] == role.outputs["arn"]
    assert made.dependencies == (subnet.urn,)
    assert made.property_dependencies == {"vpcConfig": (subnet.urn,)}
    assert graph.simulated == ("aws", "eks")


def test_attributes_of_the_eks_cluster_can_be_lifted(record: Record) -> None:
    def program() -> None:
        made = cluster()
        pulumi.export("endpoint", made.eks_cluster.endpoint)
        pulumi.export("certificate", made.eks_cluster.certificate_authority.data)
        pulumi.export("group", made.eks_cluster.vpc_config.cluster_security_group_id)
        pulumi.export("same", made.cluster_security_group_id)
        pulumi.export("name", made.eks_cluster.name)
        pulumi.export("core", made.core.endpoint)
        pulumi.export("kubeconfig", made.kubeconfig_json)
        aws.eks.Addon("a", cluster_name=made.eks_cluster.name, addon_name="vpc-cni")

    graph = record(program)
    outputs = graph.outputs
    assert str(outputs["endpoint"]).startswith("https://SIM")
    assert outputs["core"] == outputs["endpoint"]
    assert outputs["certificate"]
    assert outputs["group"] == outputs["same"] != ""
    assert outputs["name"] == "trn"
    kubeconfig = json.loads(outputs["kubeconfig"])
    assert kubeconfig["clusters"][0]["cluster"]["server"] == outputs["endpoint"]
    assert kubeconfig["users"][0]["user"]["exec"]["args"][:2] == ["--region", "us-west-2"]
    (addon,), (made,) = graph.of_type("aws:eks/addon:Addon"), graph.of_type("aws:eks/cluster:Cluster")
    assert made.urn in addon.dependencies

    preview = record(program, dry_run=True).outputs
    assert preview["endpoint"] == preview["kubeconfig"] == preview["group"] == UNKNOWN


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"skip_default_node_group": None}, "skipDefaultNodeGroup must be true"),
        ({"coredns_addon_options": None}, r"corednsAddonOptions must be \{enabled: false\}"),
        ({"create_oidc_provider": True}, "createOidcProvider must be left out"),
        ({"authentication_mode": None}, "authenticationMode must be API"),
        ({"service_role": None}, "serviceRole must be given"),
        ({"fargate": True}, "fargate must be left out"),
        ({"instance_roles": ["arn:aws:iam::000000000000:role/r"]}, "instanceRoles must be left out"),
        ({"auto_mode": {"enabled": True}}, "autoMode must be left out"),
    ],
)
def test_with_options_whose_children_are_not_known_the_eks_cluster_is_shown_alone(
    record: Record, changes: dict[str, Any], fault: str
) -> None:
    with pytest.raises(RecordingError, match=fault):
        record(lambda: cluster(**changes))
    ran: list[Any] = []

    def program() -> None:
        made = cluster(**changes)
        made.kubeconfig.apply(ran.append)
        pulumi.export("name", made.eks_cluster.name)

    graph = record(program, foreign=True)
    [alone] = graph.not_simulated
    assert (alone.name, graph.children(alone.urn), graph.outputs["name"], ran) == ("c", (), UNKNOWN, [])
