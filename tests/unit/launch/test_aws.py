"""What AWS is asked, answered by moto or by canned answers."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.stub import Stubber  # type: ignore[import-untyped]
from moto import mock_aws

from trainium_eks.launch import aws
from trainium_eks.launch.aws import Aws, AwsError, GroupSize, NotAllowed

REGION = "us-west-2"
REPOSITORY = f"123456789012.dkr.ecr.{REGION}.amazonaws.com/trn/training"
Canned = Callable[[str], Stubber]


@pytest.fixture
def canned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Canned]:
    """Makes a service answer what a test says."""
    stubbers: dict[str, Stubber] = {}

    def of(service: str) -> Stubber:
        client = boto3.client(service, region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x")
        stubbers[service] = Stubber(client)
        stubbers[service].activate()
        return stubbers[service]

    monkeypatch.setattr(aws, "client", lambda service, _: stubbers[service].client)
    yield of
    for stubber in stubbers.values():
        stubber.assert_no_pending_responses()


def _images(*tags: str) -> dict[str, Any]:
    details = [
        {"imageTags": [tag], "imageDigest": f"sha256:{tag}", "imagePushedAt": datetime(2026, 11, day, tzinfo=UTC)}
        for day, tag in enumerate(tags, start=1)
    ]
    return {"imageDetails": [*details, {"imageDigest": "sha256:untagged"}]}


_ASKED = {"registryId": "123456789012", "repositoryName": "trn/training"}


def test_the_newest_image_is_the_default(canned: Canned) -> None:
    canned("ecr").add_response("describe_images", _images("a1", "b2"), {**_ASKED, "filter": {"tagStatus": "TAGGED"}})
    assert Aws(REGION).newest_image(REPOSITORY) == f"{REPOSITORY}:b2"


def test_an_empty_repository_has_no_default(canned: Canned) -> None:
    canned("ecr").add_response("describe_images", {"imageDetails": []})
    assert Aws(REGION).newest_image(REPOSITORY) == ""
    assert Aws(REGION).newest_image("") == ""


@pytest.mark.parametrize("image", [f"{REPOSITORY}:bert", f"{REPOSITORY}@sha256:untagged"])
def test_images_that_are_there(canned: Canned, image: str) -> None:
    canned("ecr").add_response("describe_images", _images("bert"), _ASKED)
    assert Aws(REGION).image_problem(image) is None


def test_a_missing_image_names_the_nearest(canned: Canned) -> None:
    canned("ecr").add_response("describe_images", _images("bert-2", "llama"), _ASKED)
    problem = Aws(REGION).image_problem(f"{REPOSITORY}:bert-3")
    assert problem is not None
    assert problem.reason == "the repository has no image bert-3"
    assert problem.good == f"{REPOSITORY}:bert-2"
    assert "trn image push" in problem.fix


def test_other_registries_are_not_asked() -> None:
    assert Aws(REGION).image_problem("public.ecr.aws/neuron/pytorch-training-neuronx:2.9.0") is None
    assert Aws(REGION).image_problem("localhost:5000/train") is None


@mock_aws
def test_a_repository_of_a_real_looking_ecr(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    ecr = boto3.client("ecr", region_name=REGION)
    ecr.create_repository(repositoryName="trn/training")
    manifest = (
        '{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": [], "config": {}}'
    )
    ecr.put_image(repositoryName="trn/training", imageManifest=manifest, imageTag="bert")
    assert Aws(REGION).newest_image(REPOSITORY) == f"{REPOSITORY}:bert"
    assert Aws(REGION).image_problem(f"{REPOSITORY}:bert") is None
    with pytest.raises(AwsError, match="RepositoryNotFoundException"):
        Aws(REGION).newest_image(REPOSITORY.replace("training", "none"))


def test_when_a_capacity_block_ends(canned: Canned) -> None:
    ends = datetime(2026, 12, 1, 11, 30, tzinfo=UTC)
    asked = {"CapacityReservationIds": ["cr-1"]}
    ec2 = canned("ec2")
    ec2.add_response("describe_capacity_reservations", {"CapacityReservations": [{"EndDate": ends}]}, asked)
    ec2.add_response("describe_capacity_reservations", {"CapacityReservations": [{}]}, asked)
    assert Aws(REGION).capacity_ends("cr-1") == "2026-12-01T11:30:00Z"
    assert Aws(REGION).capacity_ends("cr-1") == ""


def test_the_size_of_a_group(canned: Canned) -> None:
    health = {"issues": [{"code": "InsufficientFreeAddresses", "message": "no addresses"}]}
    scaling = {"minSize": 0, "maxSize": 4, "desiredSize": 2}
    found = {"nodegroup": {"scalingConfig": scaling, "status": "DEGRADED", "health": health}}
    asked = {"clusterName": "trn-dev", "nodegroupName": "ng1-abc"}
    canned("eks").add_response("describe_nodegroup", found, asked)
    size = Aws(REGION).group_size("trn-dev", "ng1-abc")
    assert size == GroupSize(2, 0, 4, "DEGRADED", ("InsufficientFreeAddresses: no addresses",))


def test_scaling_asks_for_the_number_alone(canned: Canned) -> None:
    asked = {"clusterName": "trn-dev", "nodegroupName": "ng1-abc", "scalingConfig": {"desiredSize": 4}}
    canned("eks").add_response("update_nodegroup_config", {}, asked)
    Aws(REGION).scale("trn-dev", "ng1-abc", 4)


def test_who_may_not_is_told_so(canned: Canned) -> None:
    canned("eks").add_client_error("update_nodegroup_config", "AccessDeniedException", "not authorized")
    with pytest.raises(NotAllowed, match="cannot scale the node group ng1: not authorized"):
        Aws(REGION).scale("trn-dev", "ng1", 4)


def test_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    with pytest.raises(AwsError, match="there are no AWS credentials here"):
        Aws(REGION).newest_image(REPOSITORY)
