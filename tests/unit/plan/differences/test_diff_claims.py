"""Claims that an update takes away, in the difference between two programs."""

from collections.abc import Callable
from typing import Any

import pulumi

from components import FsxLustre, LustreVolumes, TrainingNamespace
from trainium_eks.operate.review.risks import risks
from trainium_eks.plan.differences.changes import Changes
from trainium_eks.plan.differences.diff import compare
from trainium_eks.plan.graph import Graph

Record = Callable[..., Graph]

WIRING = {
    "region": "us-west-2",
    "vpc_id": "vpc-1",
    "subnet_id": "subnet-1",
    "kms_key_arn": "arn:aws:kms:us-west-2:111122223333:key/k",
}
TEAM = {"queues": ("test",), "region": "us-west-2", "cluster_name": "c", "volume_gib": 1200}


def program(*teams: str, zone: str = "subnet-1", with_files: bool = True) -> Callable[[], None]:
    """A file system that the teams share."""

    def run() -> None:
        files: dict[str, pulumi.Output[str]] = {}
        if with_files:
            made = FsxLustre("fsx", {**WIRING, "subnet_id": zone})
            volumes = LustreVolumes(
                "volumes",
                {
                    "file_system_id": made.file_system_id,
                    "dns_name": made.dns_name,
                    "mount_name": made.mount_name,
                    "storage_capacity_gib": 1200,
                    "subnet_id": "subnet-1",
                    "security_group_id": made.security_group_id,
                    "namespaces": {name: 1000 + index for index, name in enumerate(teams)},
                },
            )
            files = {name: volumes.volume_name(name) for name in teams}
        for name in teams:
            given: dict[str, Any] = {**TEAM, "name": name, "volume_name": files.get(name)}
            TrainingNamespace(name, given)

    return run


def changes(record: Record, before: Callable[[], None], after: Callable[[], None]) -> Changes:
    return compare(record(before), record(after))


def names(found: Changes) -> list[str]:
    return [change.resource.name for change in found.claims]


def test_another_file_system_takes_the_teams_claims_and_the_setup_goes_by_itself(record: Record) -> None:
    found = changes(record, program("vision", "speech"), program("vision", "speech", zone="subnet-2"))
    replaced = {change.resource.name for change in found.replaced}
    assert {
        "fsx-file-system",
        "volumes-vision",
        "vision-claim",
        "volumes-setup-claim",
        "volumes-directories",
    } <= replaced
    assert sorted(names(found)) == ["speech-claim", "vision-claim"]
    assert set(found.to_json()["claims"]) == {change.resource.urn for change in found.claims}


def test_a_file_system_that_goes_takes_the_claims(record: Record) -> None:
    assert names(changes(record, program("vision"), program("vision", with_files=False))) == ["vision-claim"]


def test_a_claim_that_goes_with_its_namespace_holds_nothing_up(record: Record) -> None:
    found = changes(record, program("vision", "speech"), program("vision"))
    assert "speech-claim" in {change.resource.name for change in found.deleted}
    assert names(found) == []


def test_a_reviewer_is_told_which_claims_pods_hold_up(record: Record) -> None:
    before, after = record(program("vision")), record(program("vision", zone="subnet-2"))
    found = [
        risk for risk in risks(before, after, compare(before, after), frozenset()) if "pods that mount" in risk.what
    ]
    assert [risk.note.partition(";")[0] for risk in found] == ["vision/fsx-claim"]
