"""Each limit of a judge, on both sides: the last value that is taken and the first that is not."""

from collections.abc import Sequence
from typing import Any

import pytest
from unit.model.config.test_bad_inputs import SOUND, judged, laid_over

from trainium_eks.model.catalogue import lustre
from trainium_eks.model.catalogue.instance_entries import with_entries
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.config import cluster, cross, stack_config, storage
from trainium_eks.model.config.cluster import ClusterConfig
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.model.config.storage import FileSystemConfig
from trainium_eks.model.sizing import queues
from trainium_eks.model.sizing.queues import QueueConfig, VolcanoConfig
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import read
from trainium_eks.model.validation.problems import Problem, Severity, refused

NEURON = "aws.amazon.com/neuron"


def paths(found: list[Problem] | tuple[Problem, ...]) -> list[str]:
    return [each.path for each in found]


def of_sizes(minimum: int, maximum: int, desired: int) -> list[str]:
    return paths(cluster.size_problems(minimum, maximum, desired))


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((0, 1, 0), []),
        ((0, 0, 0), ["max_size"]),
        ((0, 450, 0), []),
        ((0, 451, 0), ["max_size"]),
        ((-1, 1, 0), ["min_size"]),
        ((2, 2, 2), []),
        ((3, 2, 2), ["min_size"]),
        ((1, 3, 1), []),
        ((1, 3, 0), ["desired_size"]),
        ((1, 3, 3), []),
        ((1, 3, 4), ["desired_size"]),
    ],
)
def test_sizes_of_a_group(sizes: tuple[int, int, int], told: list[str]) -> None:
    assert of_sizes(*sizes) == told


@pytest.mark.parametrize(
    ("kubernetes", "severity"),
    [
        ("1.33", Severity.ACKNOWLEDGE),
        ("1.34", Severity.ACKNOWLEDGE),
        ("1.35", None),
        ("1.20", Severity.REFUSE),
        ("1.99", Severity.REFUSE),
    ],
)
def test_versions_by_their_support(kubernetes: str, severity: Severity | None) -> None:
    config = read(ClusterConfig, {"endpoint": {"private_access_via": "vpc"}, "kubernetes_version": kubernetes})
    found = [each for each in cluster.validate(config, production=False) if each.path == "kubernetes_version"]
    assert [each.severity for each in found if each.severity is not Severity.WARN] == ([severity] if severity else [])


@pytest.mark.parametrize(("vcpus", "memory", "warned"), [(4, 16, False), (3, 16, True), (4, 15, True), (8, 32, False)])
def test_system_nodes_hold_the_control_components(vcpus: int, memory: int, warned: bool) -> None:
    types = with_entries(CATALOGUE, {"x1.own": {"like": "m6i.xlarge", "vcpus": vcpus, "memoryGib": memory}})
    config = read(
        ClusterConfig, {"endpoint": {"private_access_via": "vpc"}, "system_nodes": {"instance_type": "x1.own"}}
    )
    found = cluster.validate(config, production=False, catalogue=types)
    assert (paths(found) == ["system_nodes.instance_type"]) == warned


@pytest.mark.parametrize(("prefix", "taken"), [(11, False), (12, True), (24, True), (25, False)])
def test_service_ranges(prefix: int, taken: bool) -> None:
    start = "172.16.0.0" if prefix >= 12 else "172.0.0.0"
    config = read(ClusterConfig, {"endpoint": {"private_access_via": "vpc"}, "service_cidr_block": f"{start}/{prefix}"})
    assert (cluster.validate(config, production=False) == []) == taken


def of_files(production: bool = False, **data: Any) -> list[str]:
    return paths(storage.validate(read(FileSystemConfig, data), production=production))


@pytest.mark.parametrize("path", ["data", "", "/a//b"])
def test_a_linked_directory_is_absolute(path: str) -> None:
    assert of_files(durability={"type": "s3", "file_system_path": path}) == ["durability.file_system_path"]


def test_nothing_is_kept_only_on_scratch_and_outside_production() -> None:
    scratch = {"deployment_type": "SCRATCH_2", "durability": {"type": "none"}}
    assert of_files(**scratch) == []
    assert of_files(production=True, **scratch) == ["durability.type", "deployment_type"]
    assert of_files(durability={"type": "none"}) == ["durability.type"]
    assert of_files(**{**scratch, "efa_enabled": True, "storage_capacity_gib": 19_200}) == ["efa_enabled"]
    assert of_files(**{**scratch, "metadata_iops": 1500}) == ["metadata_iops"]


def test_protection_may_be_off_outside_production() -> None:
    assert of_files(protect=False) == []
    assert of_files(production=True, protect=False) == ["protect"]
    assert of_files(production=True, protect=True) == []


def of_volcano(**data: Any) -> list[tuple[str, str]]:
    found = queues.volcano_problems(read(VolcanoConfig, data), rests_at_zero=False)
    return [(each.path, each.severity.value) for each in found]


@pytest.mark.parametrize(
    ("replicas", "told"),
    [
        (0, [("replicas", "refuse")]),
        (1, [("replicas", "acknowledge")]),
        (2, []),
        (5, []),
        (6, [("replicas", "refuse")]),
    ],
)
def test_copies_of_the_scheduler(replicas: int, told: list[tuple[str, str]]) -> None:
    assert of_volcano(replicas=replicas) == told


def of_queues(*data: dict[str, Any]) -> list[str]:
    return paths(queues.validate([read(QueueConfig, each) for each in data], pool={NEURON: 64}))


@pytest.mark.parametrize(("amount", "taken"), [(0, False), (1, True), (64, True), (65, False)])
@pytest.mark.parametrize("field", ["capability", "guarantee", "deserved"])
def test_amounts_are_within_the_pool(field: str, amount: int, taken: bool) -> None:
    assert (of_queues({"name": "q", field: {NEURON: amount}}) == []) == taken


@pytest.mark.parametrize(
    ("low", "high"), [("guarantee", "deserved"), ("deserved", "capability"), ("guarantee", "capability")]
)
def test_amounts_are_in_order(low: str, high: str) -> None:
    assert of_queues({"name": "q", low: {NEURON: 8}, high: {NEURON: 8}}) == []
    assert of_queues({"name": "q", low: {NEURON: 9}, high: {NEURON: 8}}) == [f'[0].{low}["{NEURON}"]']


@pytest.mark.parametrize("field", ["guarantee", "deserved"])
def test_siblings_share_the_pool(field: str) -> None:
    pair = [{"name": "a", field: {NEURON: 32}}, {"name": "b", field: {NEURON: 32}}]
    assert of_queues(*pair) == []
    assert len(of_queues(pair[0], {"name": "b", field: {NEURON: 33}})) == 1


def test_a_child_has_no_more_than_its_parent() -> None:
    parent = {"name": "p", "capability": {NEURON: 32}}
    assert of_queues(parent, {"name": "c", "parent": "p", "capability": {NEURON: 32}}) == []
    assert of_queues(parent, {"name": "c", "parent": "p", "capability": {NEURON: 33}}) != []


@pytest.mark.parametrize(("levels", "taken"), [(5, True), (6, False)])
def test_queues_are_five_levels_deep(levels: int, taken: bool) -> None:
    chain = [{"name": f"q{level}", **({"parent": f"q{level - 1}"} if level else {})} for level in range(levels)]
    assert (of_queues(*chain) == []) == taken


def of_stack(**data: Any) -> list[str]:
    return paths(judged(laid_over(SOUND, data)))


@pytest.mark.parametrize(("count", "warned"), [(28, False), (29, True)])
def test_node_groups_with_those_for_cpus(count: int, warned: bool) -> None:
    groups = [{"name": f"g{index}", "instanceType": "trn1.2xlarge"} for index in range(count)]
    assert cross.MOST_NODE_GROUPS == 30
    assert ("node_groups" in of_stack(nodeGroups=groups)) == warned


@pytest.mark.parametrize(("count", "taken"), [(63, True), (64, False)])
def test_names_of_kubernetes_objects(count: int, taken: bool) -> None:
    assert (formats.dns_label("name", "n" * count) == []) == taken


@pytest.mark.parametrize(("count", "taken"), [(40, True), (41, False)])
def test_names_that_roles_are_made_from(count: int, taken: bool) -> None:
    assert formats.DERIVED_NAME_LENGTH == 40
    assert (formats.derived_name("name", "n" * count) == []) == taken


@pytest.mark.parametrize(("count", "taken"), [(2, False), (3, True), (63, True), (64, False)])
def test_names_of_buckets(count: int, taken: bool) -> None:
    assert (formats.bucket("bucket", "b" * count) == []) == taken


@pytest.mark.parametrize(
    "name", ["192.168.0.1", "a..b", "xn--a", "sthree-a", "a-s3alias", "a--ol-s3", "a--x-s3", "Abc"]
)
def test_names_that_s3_keeps_for_itself(name: str) -> None:
    assert paths(formats.bucket("bucket", name)) == ["bucket"]


@pytest.mark.parametrize(
    ("size", "good"),
    [(-5, 1200), (1199, 1200), (1201, 1200), (1800, 2400), (3600, 4800), (4801, 4800), (100_000, 100_800)],
)
def test_sizes_are_1200_and_multiples_of_2400_and_others_get_the_nearest(size: int, good: int) -> None:
    (told,) = storage.validate(read(FileSystemConfig, {"storage_capacity_gib": size}), production=False)
    assert (told.path, told.good) == ("storage_capacity_gib", good)
    assert of_files(storage_capacity_gib=good) == []


@pytest.mark.parametrize(("throughput", "step"), [(125, 38_400), (250, 19_200), (500, 9_600), (1000, 4_800)])
def test_with_efa_sizes_are_multiples_of_the_throughputs_step(throughput: int, step: int) -> None:
    def told(size: int) -> list[str]:
        return of_files(efa_enabled=True, throughput_per_tib=throughput, storage_capacity_gib=size)

    assert [told(step), told(2 * step)] == [[], []]
    assert [told(1200), told(step // 2), told(step - 1), told(step + 2400)] == [["storage_capacity_gib"]] * 4


def test_one_zone_is_told_once_and_nothing_is_judged_by_it() -> None:
    assert of_stack(network={"zoneIds": ["usw2-az1"]}) == ["network.zone_ids"]


def test_ports_are_those_of_the_fsx_guide() -> None:
    assert lustre.PORTS == ((988, 988), (1018, 1023))


@pytest.mark.parametrize(
    ("directory", "mounted"), [("/", "m"), ("", "m"), ("/team", "m/team"), ("/linked/team/", "m/linked/team")]
)
def test_a_fileset_is_the_mount_name_and_a_directory(directory: str, mounted: str) -> None:
    assert lustre.fileset("m", directory) == mounted


@pytest.mark.parametrize(("root", "found"), [("/", "/team"), ("/linked", "/linked/team"), ("/a/b/", "/a/b/team")])
def test_a_teams_directory_lies_in_the_root(root: str, found: str) -> None:
    assert lustre.team_directory(root, "team") == found


@pytest.mark.parametrize(
    ("gib", "kind", "per_tib", "megabytes"),
    [(1200, "PERSISTENT_2", 250, 293), (9600, "PERSISTENT_2", 1000, 9375), (2400, "SCRATCH_2", 250, 234)],
)
def test_a_file_system_writes_what_its_disks_take(gib: int, kind: str, per_tib: int, megabytes: float) -> None:
    assert lustre.write_megabytes_per_second(gib, kind, per_tib) == pytest.approx(megabytes, abs=0.5)


def problems(users: Sequence[int | None], **changes: Any) -> list[Problem]:
    teams = [
        {"name": f"team{index}", "queues": ("test",), **({} if user is None else {"training_user_id": user})}
        for index, user in enumerate(users)
    ]
    stack = StackConfig.model_validate({"region": "us-west-2", "owner": "ml", "namespaces": teams, **changes})
    return [each for each in stack_config.validate(stack) if each.path.endswith("training_user_id")]


def test_two_teams_of_one_user_are_told_apart_or_accepted_with_a_reason() -> None:
    (found,) = problems([None, None])
    assert (found.path, found.value, found.good) == ("namespaces[1].training_user_id", 1000, 1001)
    assert (found.severity, found.rule) == (Severity.ACKNOWLEDGE, "R68")
    assert "team0" in found.reason
    assert refused([found], {}) == (found,)
    assert refused([found], {"R68": "one image, one user"}) == ()


def test_each_is_given_a_number_that_nobody_has() -> None:
    assert [each.good for each in problems([1000, 1001, 1000, 1000])] == [1002, 1003]


def test_users_of_their_own_and_no_file_system_are_well() -> None:
    assert problems([1000, 1001]) == []
    assert problems([None, None], file_system=None) == []
