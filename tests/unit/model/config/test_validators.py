"""What each section's judge allows and refuses beyond the table of bad inputs, and that no judge ever raises."""

import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Any

import botocore.session
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.model.config.test_bad_inputs import SOUND, judged, laid_over
from unit.model.config.test_config import EVERY, VARIANTS, put, text

from trainium_eks.model.catalogue import versions
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE, CatalogueError
from trainium_eks.model.config import cluster, namespaces, network, node_groups, repository, storage
from trainium_eks.model.config.cluster import ClusterConfig
from trainium_eks.model.config.namespaces import NamespaceConfig
from trainium_eks.model.config.network import NetworkConfig
from trainium_eks.model.config.node_groups import NodeGroupConfig
from trainium_eks.model.config.repository import ImageRepositoryConfig
from trainium_eks.model.config.stack_config import load
from trainium_eks.model.config.stack_config import validate as stack_problems
from trainium_eks.model.config.storage import FileSystemConfig
from trainium_eks.model.sizing import queues
from trainium_eks.model.sizing.queues import QueueConfig, VolcanoConfig
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import ConfigModel, ConfigModelError, read
from trainium_eks.model.validation.problems import Problem, Severity

NEURON, EFA = "aws.amazon.com/neuron", "vpc.amazonaws.com/efa"
POOL = {NEURON: 64, EFA: 32}


def of(spec: type[ConfigModel], **data: Any) -> Any:
    return read(spec, data)


def paths(problems: Sequence[Problem]) -> list[str]:
    return [problem.path for problem in problems]


def group(**data: Any) -> list[Problem]:
    config = of(NodeGroupConfig, **{"name": "train", "instance_type": "trn1.32xlarge", **data})
    return node_groups.validate(config, region="us-west-2", catalogue=CATALOGUE)


def file_system(production: bool = False, **data: Any) -> list[Problem]:
    return storage.validate(of(FileSystemConfig, **data), production=production)


def stack(**data: Any) -> tuple[Problem, ...]:
    return judged(laid_over(SOUND, data))


def queue_problems(*data: Mapping[str, Any], pool: Mapping[str, int] = POOL) -> list[Problem]:
    return queues.validate([of(QueueConfig, **each) for each in data], pool=pool)


class TestNodeGroups:
    @pytest.mark.parametrize("name", [name for name, kind in CATALOGUE.items() if kind.family != "cpu"])
    def test_every_accelerator_of_the_catalogue_is_a_good_group(self, name: str) -> None:
        usage = CATALOGUE[name].usage
        block = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "zone_id": "usw2-az4"}
        capacity = {"type": "on-demand"} if "on-demand" in usage else block
        found = group(instance_type=name, capacity=capacity)
        assert [problem for problem in found if "zone" not in problem.reason] == []

    def test_a_type_is_had_by_the_capacity_that_it_is_sold_as(self) -> None:
        catalogue = with_entries(CATALOGUE, {"trn3.48xlarge": {"like": "trn2.48xlarge", "usage": ["capacity-block"]}})
        config = of(NodeGroupConfig, name="train", instance_type="trn3.48xlarge")
        (told,) = node_groups.validate(config, region="us-west-2", catalogue=catalogue)
        assert (told.path, told.severity, told.good) == ("capacity.type", Severity.REFUSE, "capacity-block")
        block = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "zone_id": "usw2-az4"}
        assert "capacity.type" in paths(group(instance_type="inf2.xlarge", capacity=block))

    def test_spot_without_a_gang_needs_no_acknowledgement(self) -> None:
        assert not [each for each in group(instance_type="trn1.2xlarge", capacity={"type": "spot"}) if each.rule]

    @pytest.mark.parametrize(
        ("version", "sound"),
        [("v1.18.5-eksbuild.1", True), ("v1.18.4-eksbuild.9", False), ("v1.9.5-eksbuild.1", False)],
    )
    def test_efa_only_interfaces_need_a_cni_that_knows_them(self, version: str, sound: bool) -> None:
        config = of(NodeGroupConfig, name="train", instance_type="trn1.32xlarge")
        found = node_groups.validate(config, region="us-west-2", catalogue=CATALOGUE, vpc_cni_version=version)
        assert (found == []) == sound
        without_efa = of(NodeGroupConfig, name="train", instance_type="trn1.2xlarge")
        assert node_groups.validate(without_efa, region="us-west-2", catalogue=CATALOGUE, vpc_cni_version=version) == []


class TestNetworks:
    def test_peers_leave_a_range_of_the_same_size(self) -> None:
        found = network.validate(of(NetworkConfig, peer_cidr_blocks=["10.0.0.0/15", "10.2.0.0/16"]), region="us-west-2")
        assert [(each.path, each.good) for each in found] == [("cidr_block", "10.3.0.0/16")]

    def test_a_range_of_no_vpc_gets_no_range_proposed_for_its_peers(self) -> None:
        found = network.validate(
            of(NetworkConfig, cidr_block="10.0.0.0/8", peer_cidr_blocks=["10.0.0.0/16"]), region="us-west-2"
        )
        assert [(each.path, each.good) for each in found] == [("cidr_block", "10.0.0.0/16"), ("cidr_block", None)]

    def test_endpoints_are_services_of_the_region(self) -> None:
        found = network.validate(
            of(NetworkConfig, interface_endpoints=["sts", "s3", "ecr-api", "ECR"]), region="us-west-2"
        )
        assert [(each.path[-2], each.severity.value) for each in found] == [
            ("1", "warn"),
            ("2", "warn"),
            ("3", "refuse"),
        ]

    def test_the_other_network_section_is_not_silently_ignored(self) -> None:
        found = stack(existingNetwork=VARIANTS[("existingNetwork",)], network={"natGateways": "per-zone"})
        assert [(each.path, each.severity) for each in found] == [("network", Severity.WARN)]
        assert stack(existingNetwork=VARIANTS[("existingNetwork",)], network={}) == ()

    def test_production_has_no_single_point_of_failure_in_its_way_out(self) -> None:
        def nat(**settings: Any) -> list[Problem]:
            return [each for each in stack(production=True, network=settings) if each.path == "network.nat_gateways"]

        (told,) = nat()
        assert (told.rule, told.good) == ("R34", "per-zone")
        assert nat(natGateways="per-zone") == []
        assert nat(interfaceEndpoints=list(network.COMPLETE_ENDPOINTS)) == []
        assert [each for each in stack(network={}) if each.rule == "R34"] == []


class TestClusters:
    def validate(self, production: bool = False, **data: Any) -> list[Problem]:
        config = of(ClusterConfig, **{"endpoint": {"private_access_via": "vpc"}, **data})
        return cluster.validate(config, production=production)

    def test_a_version_without_pinned_add_ons_asks_for_those_that_follow_it(self) -> None:
        found = self.validate(kubernetes_version="1.33")
        refused = [each for each in found if each.severity is Severity.REFUSE]
        assert paths(refused) == ["addons.kube-proxy.version", "addons.coredns.version"]
        pins = {"kube-proxy": {"version": "v1.33.3-eksbuild.4"}, "coredns": {"version": "v1.12.2-eksbuild.4"}}
        found = self.validate(kubernetes_version="1.33", addons=pins)
        assert [each for each in found if each.severity is Severity.REFUSE] == []

    @pytest.mark.parametrize(
        ("addons", "where", "says"),
        [
            ({"vpc-cn": {}}, "addons.vpc-cn.version", "did you mean vpc-cni?"),
            ({"my addon": {"version": "v1.0.0-eksbuild.1"}}, 'addons["my addon"]', "not the name"),
            (
                {"aws-ebs-csi-driver": {"version": "v1.57.9-eksbuild.1"}},
                "addons.aws-ebs-csi-driver.version",
                "need 1.58.0 or later",
            ),
        ],
    )
    def test_an_add_on_that_eks_would_refuse_is_refused(self, addons: Any, where: str, says: str) -> None:
        found = {each.path: each for each in self.validate(addons=addons) if each.severity is Severity.REFUSE}
        assert says in f"{found[where].reason} {found[where].fix}"

    @pytest.mark.parametrize(
        "addons",
        [
            {"amazon-cloudwatch-observability": {}},
            {"snapshot-controller": {"version": "v8.3.0-eksbuild.1"}},
            {"aws-efs-csi-driver": {"version": "v2.1.9-eksbuild.1"}},
            {"eks-node-monitoring-agent": {"version": "v1.3.0-eksbuild.1"}},
            {"aws-ebs-csi-driver": {"version": "v1.58.0-eksbuild.1"}},
            {"coredns": {"settings": {"replicaCount": 3}}},
        ],
    )
    def test_add_ons_of_a_users_own_are_taken(self, addons: Any) -> None:
        assert self.validate(addons=addons) == []

    @pytest.mark.parametrize("key", ["WARM_IP_TARGET", "ENABLE_PREFIX_DELEGATION"])
    def test_settings_that_the_address_budget_does_not_count_are_warned_of(self, key: str) -> None:
        (told,) = self.validate(addons={"vpc-cni": {"settings": {"env": {key: "1"}}}})
        assert (told.path, told.severity) == ("addons.vpc-cni.settings.env", Severity.WARN)

    def test_the_former_key_says_where_versions_are_now(self) -> None:
        with pytest.raises(ConfigModelError, match="a version is a field of its add-on"):
            self.validate(addon_versions={"vpc-cni": "v1.20.0-eksbuild.1"})

    def test_a_version_that_is_refused_has_no_second_fault_for_its_kube_proxy(self) -> None:
        assert paths(self.validate(kubernetes_version="1.20")) == ["kubernetes_version"]
        assert paths(self.validate(addons={"kube-proxy": {"version": "latest"}})) == ["addons.kube-proxy.version"]

    def test_a_version_without_a_pinned_node_image_is_warned_of(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(versions, "AMI_RELEASES", {})
        found = self.validate()
        assert [(each.path, each.severity) for each in found] == [("kubernetes_version", Severity.WARN)]
        assert "`release_version` of each node group" in found[0].fix

    @pytest.mark.parametrize("version", sorted(versions.KUBERNETES_STANDARD_SUPPORT))
    @pytest.mark.parametrize(
        ("days", "severity"), [(120, []), (119, ["warn"]), (30, ["warn"]), (29, ["acknowledge"]), (0, ["acknowledge"])]
    )
    @pytest.mark.parametrize("policy", ["STANDARD", "EXTENDED"])
    def test_the_end_of_standard_support_is_told_before_it_comes(
        self, monkeypatch: pytest.MonkeyPatch, version: str, days: int, severity: list[str], policy: str
    ) -> None:
        end = datetime.datetime.fromisoformat(f"{versions.KUBERNETES_STANDARD_SUPPORT[version].standard_end}T00:00Z")
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int((end - datetime.timedelta(days)).timestamp())))
        found = [
            each for each in self.validate(kubernetes_version=version, support_type=policy) if "ends on" in each.reason
        ]
        assert [each.severity for each in found] == severity
        assert all("by itself" in each.reason if policy == "STANDARD" else "six times" in each.reason for each in found)

    @pytest.mark.parametrize(("days", "told"), [(90, 0), (91, 1)])
    def test_an_old_ami_release_is_told(self, monkeypatch: pytest.MonkeyPatch, days: int, told: int) -> None:
        made = datetime.datetime.now(datetime.UTC).replace(2026, 11, 21) - datetime.timedelta(days)
        monkeypatch.setattr(versions, "AMI_RELEASES", {versions.KUBERNETES: f"1.35.8-{made:%Y%m%d}"})
        found = self.validate()
        assert [(each.path, each.severity) for each in found] == [("kubernetes_version", Severity.WARN)] * told

    def test_service_addresses_hide_no_peer(self) -> None:
        found = stack(network={"peerCidrBlocks": ["172.20.4.0/24"]})
        assert paths(found) == ["cluster.service_cidr_block"]


class TestFileSystems:
    def test_a_link_to_s3_stands_for_backups(self) -> None:
        assert file_system(production=True, durability={"type": "s3", "bucket": "my-data"}) == []


class TestQueues:
    def test_one_queue_has_the_whole_pool(self) -> None:
        assert queue_problems({"name": "test"}) == []
        (resolved,) = queues.resolve([QueueConfig(name="test")], POOL)
        assert resolved.capability == POOL

    def test_a_child_without_capability_has_its_parents(self) -> None:
        tree = [
            QueueConfig(name="a", capability={NEURON: 32}),
            QueueConfig(name="b", parent="a"),
            QueueConfig(name="c", parent="b"),
        ]
        assert [queue.capability for queue in queues.resolve(tree, POOL)] == [{NEURON: 32}] * 3

    def test_what_is_guaranteed_is_deserved_at_least(self) -> None:
        """Volcano's webhook refuses a guarantee that ``deserved`` does not name."""
        (resolved,) = queues.resolve([QueueConfig(name="a", guarantee={NEURON: 32})], POOL)
        assert resolved.deserved == {NEURON: 32}
        assert queue_problems({"name": "a", "guarantee": {NEURON: 32}}) == []

    def test_guarantees_that_the_nodes_at_rest_do_not_cover_are_a_warning(self) -> None:
        def found(*guarantees: int, **group: Any) -> list[Problem]:
            sizes = {"min_size": 1, "max_size": 8, "desired_size": 2, **group}
            groups = [NodeGroupConfig(name="trn", instance_type="trn1.32xlarge", **sizes)]
            asked = [QueueConfig(name=f"q{index}", guarantee={NEURON: each}) for index, each in enumerate(guarantees)]
            present = queues.present(groups, CATALOGUE)
            return queues.guarantee_problems([*asked, QueueConfig(name="other")], present=present)

        assert found() == []
        assert found(16, 16) == []
        (problem,) = found(16, 17)
        assert (problem.path, problem.severity) == (f'[1].guarantee["{NEURON}"]', Severity.WARN)
        assert "33 aws.amazon.com/neuron are kept for q0 and q1" in problem.reason
        assert "have 32" in problem.reason
        # An autoscaler may take all but the smallest size away.
        assert found(16, ignore_desired_size=True) == []
        assert len(found(17, ignore_desired_size=True)) == 1
        assert len(found(1, min_size=0, desired_size=0)) == 1

    def test_a_guarantee_below_another_queue_is_a_share_of_its_own(self) -> None:
        tree = [
            QueueConfig(name="top", guarantee={NEURON: 32}),
            QueueConfig(name="below", parent="top", guarantee={NEURON: 32}),
        ]
        assert queues.guarantee_problems(tree, present={NEURON: 32}) == []

    def test_leaves_take_jobs(self) -> None:
        tree = [QueueConfig(name="a"), QueueConfig(name="b", parent="a"), QueueConfig(name="c", parent="root")]
        assert queues.leaves(tree) == ("b", "c")

    def test_a_child_alone_stays_within_what_its_parent_is_guaranteed(self) -> None:
        found = queue_problems(
            {"name": "parent", "guarantee": {NEURON: 16}},
            {"name": "child", "parent": "parent", "guarantee": {NEURON: 32}},
        )
        assert paths(found) == [f'[1].guarantee["{NEURON}"]']

    def test_reclaim_is_warned_of_because_it_breaks_gangs(self) -> None:
        (told,) = queues.volcano_problems(VolcanoConfig(reclaim=True), rests_at_zero=False)
        assert (told.path, told.severity) == ("reclaim", Severity.WARN)

    def test_enqueue_may_stay_where_no_group_rests(self) -> None:
        assert queues.volcano_problems(VolcanoConfig(scale_from_zero=False), rests_at_zero=False) == []


class TestNamespaces:
    def validate(self, *data: Mapping[str, Any], parents: Sequence[str] = ()) -> list[Problem]:
        return namespaces.validate(
            [of(NamespaceConfig, **{"queues": ["test"], **each}) for each in data],
            queue_names=("test", "other"),
            parent_queue_names=parents,
        )

    def test_queues_exist_and_take_jobs(self) -> None:
        found = self.validate({"name": "a", "queues": ["tst", "top", "test"]}, parents=("top",))
        assert [(each.path, each.good) for each in found] == [
            ("[0].queues[0]", "test"),
            ("[0].queues[1]", None),
        ]
        assert "takes no jobs" in found[1].reason


class TestAcrossSections:
    def test_group_names_are_used_once(self) -> None:
        twice = [{"name": "a", "instanceType": "trn1.32xlarge"}] * 2
        assert paths(stack(nodeGroups=twice)) == ["node_groups[1].name"]

    @pytest.mark.parametrize("prefix", range(17, 24))
    def test_the_range_that_is_proposed_has_room(self, prefix: int) -> None:
        groups = [{"name": "a", "instanceType": "trn1.32xlarge", "maxSize": 60, "interfaceLayout": "efa"}]
        found = stack(network={"cidrBlock": f"10.0.0.0/{prefix}"}, nodeGroups=groups)
        for problem in found:
            assert problem.path == "network.cidr_block"
            assert stack(network={"cidrBlock": problem.good}, nodeGroups=groups) == ()
        assert bool(found) == (prefix > 19)

    def test_cpu_nodes_are_of_a_type_that_their_zones_have(self) -> None:
        zones = {"zoneIds": ["use1-az6", "use1-az3"]}
        found = stack(
            region="us-east-1",
            network=zones,
            cluster={
                "endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]},
                "systemNodes": {"instanceType": "m7i.xlarge"},
            },
        )
        told = [each for each in found if each.path == "cluster.system_nodes.instance_type"]
        missing = "use1-az3" not in CATALOGUE["m7i.xlarge"].zones["us-east-1"]
        assert bool(told) == missing
        assert all("use1-az3" in CATALOGUE[str(each.good)].zones["us-east-1"] for each in told if each.good)


class TestFormatsAreTheServicesOwn:
    """Held against botocore's models, which are generated from the services."""

    @pytest.fixture
    def session(self) -> botocore.session.Session:
        return botocore.session.get_session()

    def test_repository_names(self, session: botocore.session.Session) -> None:
        shape = session.get_service_model("ecr").shape_for("RepositoryName").metadata
        assert repository.REPOSITORY_NAME.pattern == shape["pattern"].replace("\\/", "/")
        for length, sound in ((1, False), (2, True), (256, True), (257, False)):
            assert (repository.validate(ImageRepositoryConfig(name="a" * length)) == []) == sound
        assert (shape["min"], shape["max"]) == (2, 256)

    def test_retention(self, session: botocore.session.Session) -> None:
        text = session.get_service_model("logs").shape_for("Days").documentation.split("Possible values are:")[1]
        assert tuple(int(days) for days in re.findall(r"\d+", text.split(".")[0])) == formats.RETENTION_DAYS

    def test_throughput_and_metadata(self, session: botocore.session.Session) -> None:
        fsx = session.get_service_model("fsx")
        lustre = fsx.shape_for("CreateFileSystemLustreConfiguration").members
        text = lustre["PerUnitStorageThroughput"].documentation.split("<code>PERSISTENT_2</code> SSD storage:")[1]
        assert tuple(int(each) for each in re.findall(r"\d+", text.split("MB/s")[0])) == storage.THROUGHPUT_PER_TIB
        assert max(storage.METADATA_IOPS) == fsx.shape_for("MetadataIops").metadata["max"]
        assert min(storage.METADATA_IOPS) == fsx.shape_for("MetadataIops").metadata["min"]
        assert set(storage.EFA_STEP_GIB) == set(storage.THROUGHPUT_PER_TIB)


class TestNodes:
    def validate(self, instance_type: str = "trn1.32xlarge", **group: Any) -> list[Problem]:
        config = of(NodeGroupConfig, name="ng", instance_type=instance_type, **group)
        return node_groups.validate(config, region="us-west-2", catalogue=CATALOGUE)

    @pytest.mark.parametrize(("spare_mib", "sound"), [(2, True), (0, False), (-2, False)])
    def test_hugepages_leave_memory_to_pods(self, spare_mib: int, sound: bool) -> None:
        memory = CATALOGUE["trn1.32xlarge"].allocatable_memory_mib
        assert (self.validate(hugepages_2mi=(memory + 1 - spare_mib) // 2) == []) == sound

    @pytest.mark.parametrize(
        ("most", "zones", "sound"), [(225, 2, True), (226, 2, False), (150, 3, True), (151, 3, False)]
    )
    def test_system_nodes_of_all_zones_are_one_group(self, most: int, zones: int, sound: bool) -> None:
        config = of(ClusterConfig, endpoint={"private_access_via": "vpc"}, system_nodes={"max_size": most})
        assert (paths(cluster.validate(config, production=False, zones=zones)) == []) == sound

    @pytest.mark.parametrize("name", ["m7g.4xlarge", "im4gn.4xlarge", "a1.xlarge", "p6e-gb200.36xlarge"])
    def test_an_arm64_type_is_refused_and_no_x86_type_is_taken_for_one(self, name: str) -> None:
        with pytest.raises(CatalogueError, match="arm64"):
            with_entries(CATALOGUE, {name: {"like": "m6i.4xlarge"}})
        for other in ("m7i.4xlarge", "g6e.4xlarge", "m7i-flex.4xlarge", "p6-b200.4xlarge"):
            assert other in with_entries(CATALOGUE, {other: {"like": "m6i.4xlarge"}})


class TestFormats:
    @pytest.mark.parametrize("key", ["-team", "Example.com/team", "a" * 64, ""])
    def test_a_labels_name_is_one_that_kubernetes_takes(self, key: str) -> None:
        assert [each.reason for each in formats.labels("labels", {key: "x"})] == [
            "it is not the name of a Kubernetes label"
        ]

    @pytest.mark.parametrize(
        ("key", "value", "sound"),
        [
            ("example.com/team", "", False),
            ("example.com/team", "a.b_c-d", True),
            ("example.com/team", "-a", False),
            ("example.com/team", "a" * 63, True),
            ("example.com/team", "a" * 64, False),
            ("example.com/".ljust(63, "a"), "x", True),
            ("example.com/".ljust(64, "a"), "x", False),
            ("node.kubernetes.io/team", "x", False),
            ("k8s.io/team", "x", False),
            ("topology.k8s.aws/team", "x", False),
            ("amazonaws.com/team", "x", True),
        ],
    )
    def test_a_label_is_one_that_eks_takes(self, key: str, value: str, sound: bool) -> None:
        assert (formats.labels("labels", {key: value}) == []) == sound


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=80),
    st.sampled_from(
        ["0.0.0.0/0", "10.0.0.0/33", "::/0", "a/b", "trn1.32xlarge", "usw2-az4", "us-west-2d", "root", "²", "1.²"]
    ),
    st.lists(st.text(max_size=8), max_size=3),
    st.dictionaries(st.text(max_size=8), st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=2),
)


@settings(max_examples=400, deadline=None)
@given(
    field=st.sampled_from([param.values for param in EVERY]),
    value=ODD,
    other=st.sampled_from(["region", "queues", "nodeGroups"]),
)
def test_no_value_makes_a_judge_raise(field: Any, value: Any, other: str) -> None:
    path, _, _, data = field
    changed = put(data, path, value)
    if other == "nodeGroups":
        changed = put(changed, ("production",), True)
    try:
        config = load(text(changed))
    except ConfigModelError:
        return
    for problem in stack_problems(config):
        assert problem.path
        assert problem.rule if problem.severity is Severity.ACKNOWLEDGE else not problem.rule
