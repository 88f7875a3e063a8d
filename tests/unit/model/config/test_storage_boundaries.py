"""What FSx takes and refuses, on both sides of each boundary. The numbers are those of FSx' own documents."""

from typing import Any

import pytest

from trainium_eks.model.catalogue import lustre
from trainium_eks.model.config import storage
from trainium_eks.model.config.storage import FileSystemConfig


def refused(**section: Any) -> list[str]:
    """Paths of what is wrong with a file system."""
    return [each.path for each in storage.validate(FileSystemConfig.model_validate(section), production=False)]


@pytest.mark.parametrize(
    ("size", "good"),
    [(0, False), (1199, False), (1200, True), (1201, False), (2400, True), (3600, False), (4800, True), (4801, False)],
)
def test_sizes_are_1200_and_multiples_of_2400(size: int, good: bool) -> None:
    assert (refused(storage_capacity_gib=size) == []) is good


@pytest.mark.parametrize(("throughput", "step"), [(125, 38_400), (250, 19_200), (500, 9_600), (1000, 4_800)])
def test_with_efa_sizes_are_multiples_of_the_throughputs_step(throughput: int, step: int) -> None:
    for size, good in ((step // 2, False), (step - 1, False), (step, True), (step + 2400, False), (2 * step, True)):
        found = refused(efa_enabled=True, throughput_per_tib=throughput, storage_capacity_gib=size)
        assert (found == []) is good, size


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
