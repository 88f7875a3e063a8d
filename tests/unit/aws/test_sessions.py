"""What AWS is asked, answered by moto or by canned answers."""

from datetime import UTC, datetime

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber
from staging_servers import Handler, serving

from trainium_eks.aws import sessions
from trainium_eks.aws.account import Account, NotCheckedError
from trainium_eks.aws.sessions import Aws, AwsError, CannotAskError, GroupSize, NotAllowedError
from trainium_eks.model.catalogue.training_images import MIRROR_PREFIX
from trainium_eks.model.finding import Status
from trainium_eks.operate.cleanup import orphans
from trainium_eks.operate.cleanup.left_over import Marks

REGION = "us-west-2"
REPOSITORY = f"123456789012.dkr.ecr.{REGION}.amazonaws.com/trn/training"


@pytest.fixture
def canned(monkeypatch):
    """Makes a service answer what a test says."""
    stubbers = {}

    def of(service):
        client = boto3.client(service, region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x")
        stubbers[service] = Stubber(client)
        stubbers[service].activate()
        return stubbers[service]

    monkeypatch.setattr(sessions, "client", lambda service, _: stubbers[service].client)
    yield of
    for stubber in stubbers.values():
        stubber.assert_no_pending_responses()


_ASKED = {"registryId": "123456789012", "repositoryName": "trn/training"}


def _images(*tags):
    details = [
        {"imageTags": [tag], "imageDigest": f"sha256:{tag}", "imagePushedAt": datetime(2026, 11, day, tzinfo=UTC)}
        for day, tag in enumerate(tags, start=1)
    ]
    return {"imageDetails": [*details, {"imageDigest": "sha256:untagged"}]}


@pytest.mark.parametrize(
    ("found", "newest"), [(_images("a1", "b2", f"{MIRROR_PREFIX}c3"), f"{REPOSITORY}:b2"), ({"imageDetails": []}, "")]
)
def test_the_newest_image_is_the_default(canned, found, newest):
    canned("ecr").add_response("describe_images", found, {**_ASKED, "filter": {"tagStatus": "TAGGED"}})
    assert Aws(REGION).newest_image(REPOSITORY) == newest


@pytest.mark.parametrize("image", [f"{REPOSITORY}:bert", f"{REPOSITORY}@sha256:untagged"])
def test_existing_image_has_no_problem(canned, image):
    canned("ecr").add_response("describe_images", _images("bert"), _ASKED)
    assert Aws(REGION).image_problem(image) is None


def test_missing_image_suggests_the_nearest(canned):
    canned("ecr").add_response("describe_images", _images("bert-2", "llama"), _ASKED)
    problem = Aws(REGION).image_problem(f"{REPOSITORY}:brt-2")
    assert (problem.reason, problem.good) == ("the repository has no image brt-2", f"{REPOSITORY}:bert-2")
    assert "trn image push" in problem.fix
    canned("ecr").add_response("describe_images", {"imageDetails": []}, _ASKED)
    problem = Aws(REGION).image_problem(REPOSITORY)
    assert (problem.reason, problem.good) == ("the repository has no image yet", None)
    canned("ecr").add_response("describe_images", _images("latest"), _ASKED)
    assert Aws(REGION).image_problem(REPOSITORY) is None


@pytest.mark.parametrize("image", ["public.ecr.aws/neuron/pytorch-training-neuronx:2.9.0", "localhost:5000/train"])
def test_foreign_registry_is_not_queried(image):
    assert Aws(REGION).image_problem(image) is None


def test_missing_repository_is_an_error(canned):
    canned("ecr").add_client_error("describe_images", "RepositoryNotFoundException", "no such repository")
    with pytest.raises(AwsError, match=r"no such repository \(RepositoryNotFoundException\)$"):
        Aws(REGION).newest_image(REPOSITORY)


@pytest.mark.parametrize(
    ("found", "ends"), [({"EndDate": datetime(2026, 12, 1, 11, 30, tzinfo=UTC)}, "2026-12-01T11:30:00Z"), ({}, "")]
)
def test_capacity_blocks_end_is_read(canned, found, ends):
    answer, asked = {"CapacityReservations": [found]}, {"CapacityReservationIds": ["cr-1"]}
    canned("ec2").add_response("describe_capacity_reservations", answer, asked)
    assert Aws(REGION).capacity_ends("cr-1") == ends


_GROUP = {"clusterName": "trn-dev", "nodegroupName": "ng1-abc"}


def test_size_of_a_group_is_read(canned):
    health = {"issues": [{"code": "InsufficientFreeAddresses", "message": "no addresses"}]}
    scaling = {"minSize": 0, "maxSize": 4, "desiredSize": 2}
    found = {"nodegroup": {"scalingConfig": scaling, "status": "DEGRADED", "health": health}}
    canned("eks").add_response("describe_nodegroup", found, _GROUP)
    size = Aws(REGION).group_size("trn-dev", "ng1-abc")
    assert size == GroupSize(2, 0, 4, "DEGRADED", ("InsufficientFreeAddresses: no addresses",))


def test_scale_sends_only_the_size_and_reports_missing_rights(canned):
    eks = canned("eks")
    eks.add_response("update_nodegroup_config", {}, {**_GROUP, "scalingConfig": {"desiredSize": 4}})
    eks.add_client_error("update_nodegroup_config", "AccessDeniedException", "not authorized")
    Aws(REGION).scale("trn-dev", "ng1-abc", 4)
    with pytest.raises(NotAllowedError, match="cannot scale the node group ng1: not authorized"):
        Aws(REGION).scale("trn-dev", "ng1", 4)


@pytest.fixture
def proxy(monkeypatch):
    """A proxy that answers every request to AWS with its own page; a call sets status and body."""
    said = {"status": 200, "body": b""}

    class Page(Handler):
        protocol_version = "HTTP/1.0"

        def do_GET(self):  # noqa: N802 - the server's names
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.answer(said["status"], {"Content-Length": len(said["body"])})
            self.wfile.write(said["body"])

        do_POST = do_GET  # noqa: N815

    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # which keeps its first credentials
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with serving(Page) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield lambda status, body: said.update(status=status, body=body)


@pytest.mark.parametrize(
    "body", [b"\n<!DOCTYPE html><html><body>Log in</body></html>", b"<?xml version='1.0'?><HTML>no</HTML>", b"{]"]
)
@pytest.mark.parametrize("status", [200, 403])
@pytest.mark.parametrize(
    ("service", "operation"),
    [
        # Of each of boto3's protocols: ec2, query, json, rest-json, rest-xml.
        *(("ec2", "describe_vpcs"), ("iam", "list_roles"), ("logs", "describe_log_groups")),
        *(("eks", "list_clusters"), ("s3", "list_buckets")),
    ],
)
def test_proxys_page_is_not_an_answer(proxy, service, operation, status, body):
    proxy(status, body)
    with pytest.raises(AwsError, match="cannot look") as told, sessions.saying("look"):
        getattr(sessions.client(service, REGION), operation)()
    with pytest.raises(NotCheckedError) as checked:
        Account(REGION).call(service, operation)
    if (service, body) != ("s3", b"{]"):  # which botocore words itself, by the status
        assert "answer of AWS: look at the proxy" in str(told.value)
        assert "HTTPS_PROXY" in str(checked.value)


def test_search_behind_a_proxy_is_not_called_clean(proxy):
    proxy(200, b"<html>Log in</html>")
    found = orphans.look(Account(REGION), Marks(stack="dev"), None)
    assert {each.status for each in found.findings} == {Status.NOT_CHECKED}
    assert {what for what, _ in orphans.SEARCHES} <= {each.subject for each in found.findings}


def test_missing_credentials_and_network_are_reported(monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    with pytest.raises(CannotAskError, match="there are no AWS credentials here"):
        Aws(REGION).newest_image(REPOSITORY)
    with pytest.raises(AwsError, match=r"^cannot look: no network: Could not connect"), sessions.saying("look"):
        raise EndpointConnectionError(endpoint_url="https://ec2")
