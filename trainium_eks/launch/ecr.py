"""The stack's image repository in ECR: what is in it, and how a container engine gets in."""

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trainium_eks.local.changes import LocalError

_URL = re.compile(
    r"(?P<host>(?P<account>\d{12})\.dkr\.ecr(-fips)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?)/(?P<name>.+)"
)

PUSH_ACTIONS = (
    "ecr:GetAuthorizationToken",
    "ecr:DescribeImages",
    "ecr:BatchGetImage",
    "ecr:BatchCheckLayerAvailability",
    "ecr:GetDownloadUrlForLayer",
    "ecr:InitiateLayerUpload",
    "ecr:UploadLayerPart",
    "ecr:CompleteLayerUpload",
    "ecr:PutImage",
)
"""What pushing takes (ECR user guide, required IAM permissions for pushing an image), and looking whether it must.
The first has no resource; the others are of the repository."""


class EcrError(LocalError):
    """ECR refused, or cannot be asked."""


@dataclass(frozen=True)
class Login:
    """A way into a registry for twelve hours."""

    registry: str
    """Host."""
    user: str
    password: str


@dataclass(frozen=True)
class Repository:
    """A repository, asked with the credentials of whoever runs this."""

    url: str
    """Without a tag."""

    @property
    def registry(self) -> str:
        """Host, with its port if it has one."""
        return self.url.partition("/")[0]

    @property
    def is_ecr(self) -> bool:
        """Whether it is ECR's, or another registry that is spoken to without AWS."""
        return _URL.fullmatch(self.url) is not None

    def digest(self, tag: str) -> str:
        """The digest of the image with this tag; empty where there is none.

        Raises:
            EcrError: ECR cannot be asked, the repository is not there, or the caller may not look.
        """
        parts = _URL.fullmatch(self.url)
        if parts is None:
            return _digest_by_protocol(self.url, tag)
        with _saying(self.url, parts["name"]) as exceptions:
            client = _client(parts["region"])
            try:
                answer = client.describe_images(
                    registryId=parts["account"], repositoryName=parts["name"], imageIds=[{"imageTag": tag}]
                )
            except exceptions.ClientError as error:
                if error.response["Error"]["Code"] == "ImageNotFoundException":
                    return ""
                raise
        return str(answer["imageDetails"][0]["imageDigest"])

    def login(self) -> Login | None:
        """A way in; None where the registry is not ECR's and asks nobody.

        Raises:
            EcrError: no credentials, or no right to it.
        """
        parts = _URL.fullmatch(self.url)
        if parts is None:
            return None
        with _saying(self.url, parts["name"]):
            answer = _client(parts["region"]).get_authorization_token()
        user, _, password = (
            base64.b64decode(answer["authorizationData"][0]["authorizationToken"]).decode().partition(":")
        )
        return Login(parts["host"], user, password)


def policy(url: str) -> dict[str, Any]:
    """The IAM policy by which a person or a role may push to a repository."""
    parts = _URL.fullmatch(url)
    assert parts is not None
    partition = "aws-cn" if parts["host"].endswith(".cn") else "aws"
    arn = f"arn:{partition}:ecr:{parts['region']}:{parts['account']}:repository/{parts['name']}"
    everywhere, here = PUSH_ACTIONS[:1], PUSH_ACTIONS[1:]
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": list(everywhere), "Resource": "*"},
            {"Effect": "Allow", "Action": list(here), "Resource": arn},
        ],
    }


def _digest_by_protocol(url: str, tag: str) -> str:
    """Asks the registry itself, by HEAD (OCI distribution spec, checking if content exists)."""
    import urllib3

    host, _, name = url.partition("/")
    scheme = "http" if re.match(r"(localhost|127\.0\.0\.1)(:|$)", host) else "https"
    accept = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
    try:
        answer = urllib3.request(
            "HEAD", f"{scheme}://{host}/v2/{name}/manifests/{tag}", headers={"Accept": accept}, timeout=10, retries=2
        )
    except urllib3.exceptions.HTTPError as error:
        raise EcrError(f"the registry {host} cannot be reached: {error}") from None
    if answer.status not in (200, 404):
        raise EcrError(f"the registry {host} answers with {answer.status}")
    return str(answer.headers.get("Docker-Content-Digest", "")) if answer.status == 200 else ""


def _client(region: str) -> Any:
    """boto3 loads slowly, and a local cloud does without it."""
    import boto3  # type: ignore[import-untyped]

    return boto3.client("ecr", region_name=region)


@contextmanager
def _saying(url: str, name: str) -> Iterator[Any]:
    """Turns AWS' errors into ours."""
    try:
        from botocore import exceptions  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise EcrError("the Python package boto3 is missing: pip install 'trainium-eks[local]'") from None
    try:
        yield exceptions
    except exceptions.NoCredentialsError:
        raise EcrError("there are no AWS credentials here: aws configure, or aws sso login") from None
    except exceptions.ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
        if code == "RepositoryNotFoundException":
            raise EcrError(f"there is no repository {name} any more: does the stack still have it? ({url})") from None
        if code in ("AccessDeniedException", "AccessDenied"):
            import json

            wanted = json.dumps(policy(url))
            raise EcrError(f"your AWS identity may not do this: {message}\n  What pushing takes: {wanted}") from None
        if code in ("ExpiredTokenException", "UnrecognizedClientException", "InvalidSignatureException"):
            raise EcrError(f"your AWS credentials are not valid any more: {message} (aws sso login)") from None
        raise EcrError(f"ECR refuses: {message} ({code})") from None
    except exceptions.BotoCoreError as error:
        raise EcrError(f"ECR cannot be asked: {error}") from None
