"""Claims that an update takes away, in the difference between two programs."""

from functools import cache

import pytest

from components import FsxLustre, LustreVolumes, TrainingNamespace
from trainium_eks.operate.review.risks import risks
from trainium_eks.plan.differences.diff import compare

WIRING = {
    "region": "us-west-2",
    "vpc_id": "vpc-00000001",
    "subnet_id": "subnet-00000001",
    "kms_key_arn": "arn:aws:kms:us-west-2:111122223333:key/k",
}
TEAM = {"queues": ("test",), "region": "us-west-2", "cluster_name": "c", "volume_gib": 1200}


@pytest.fixture(scope="module")
def shared(record):
    """Records a file system that teams share."""

    @cache
    def recorded(*teams, zone="subnet-00000001", with_files=True):
        return record(lambda: program(*teams, zone=zone, with_files=with_files))

    return recorded


def program(*teams, zone, with_files):
    files = {}
    if with_files:
        made = FsxLustre("fsx", {**WIRING, "subnet_id": zone})
        args = {
            "file_system_id": made.file_system_id,
            "dns_name": made.dns_name,
            "mount_name": made.mount_name,
            "storage_capacity_gib": 1200,
            "subnet_id": "subnet-00000001",
            "security_group_id": made.security_group_id,
            "namespaces": {name: 1000 + index for index, name in enumerate(teams)},
        }
        volumes = LustreVolumes("volumes", args)
        files = {name: volumes.volume_name(name) for name in teams}
    for name in teams:
        TrainingNamespace(name, {**TEAM, "name": name, "volume_name": files.get(name)})


def claims(found):
    return sorted(change.resource.name for change in found.claims)


def test_new_file_system_replaces_the_teams_claims_and_the_setup(shared):
    before, after = shared("vision", "speech"), shared("vision", "speech", zone="subnet-00000002")
    found = compare(before, after)
    replaced = {change.resource.name for change in found.replaced}
    setup = {"volumes-setup-claim", "volumes-directories"}
    assert {"fsx-file-system", "volumes-vision", "vision-claim", *setup} <= replaced
    assert claims(found) == ["speech-claim", "vision-claim"]
    assert set(found.to_json()["claims"]) == {change.resource.urn for change in found.claims}
    told = [risk for risk in risks(before, after, found, frozenset()) if "pods that mount" in risk.what]
    assert {risk.note.partition(";")[0] for risk in told} == {"vision/fsx-claim", "speech/fsx-claim"}


def test_deleted_file_system_deletes_claims_and_a_namespace_only_its_own(shared):
    assert claims(compare(shared("vision"), shared("vision", with_files=False))) == ["vision-claim"]
    found = compare(shared("vision", "speech"), shared("vision"))
    assert "speech-claim" in {change.resource.name for change in found.deleted}
    assert claims(found) == []
