"""The stack's image repository in ECR: its images, and the login of a container engine."""

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from trainium_eks.aws import sessions
from trainium_eks.aws.sessions import ECR_URL, AwsError

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
"""Actions for a push (ECR user guide, required IAM permissions for pushing an image), and for the look whether one is
needed. The first has no resource; the others are of the repository."""


@dataclass(frozen=True)
class Login:
    """A login to a registry for twelve hours."""

    registry: str
    user: str
    password: str


@dataclass(frozen=True)
class Repository:
    """A repository, queried with the caller's credentials."""

    url: str
    """Without a tag."""

    @property
    def registry(self) -> str:
        """Return the host, with its port if it has one."""
        return self.url.partition("/")[0]

    def digest(self, tag: str) -> str:
        """Return the digest of the image with this tag, or an empty string."""
        parts = ECR_URL.fullmatch(self.url)
        if parts is None:
            return _digest_by_protocol(self.url, tag)
        try:
            with sessions.saying(f"look into the image repository {self.url}"):
                answer = sessions.client("ecr", parts["region"]).describe_images(
                    registryId=parts["registry"], repositoryName=parts["name"], imageIds=[{"imageTag": tag}]
                )
        except AwsError as error:
            if error.code == "ImageNotFoundException":
                return ""
            raise self._explained(error) from None
        return str(answer["imageDetails"][0]["imageDigest"])

    def login(self) -> Login | None:
        """Return a login; None where the registry is not ECR's and needs none."""
        parts = ECR_URL.fullmatch(self.url)
        if parts is None:
            return None
        try:
            with sessions.saying(f"log in to {self.registry}"):
                answer = sessions.client("ecr", parts["region"]).get_authorization_token()
        except AwsError as error:
            raise self._explained(error) from None
        token = base64.b64decode(answer["authorizationData"][0]["authorizationToken"]).decode()
        user, _, password = token.partition(":")
        return Login(self.registry, user, password)

    def _explained(self, error: AwsError) -> AwsError:
        """Return the error with its remedy, where one is known."""
        if error.code == "RepositoryNotFoundException":
            return AwsError(
                f"{error}: it was deleted after the stack's last update, or the outputs are old", error.code
            )
        if error.code in sessions.NOT_ALLOWED:
            return sessions.NotAllowedError(
                f"{error}\n  What pushing takes: {json.dumps(policy(self.url))}", error.code
            )
        return error


def policy(url: str) -> dict[str, Any]:
    """Return the IAM policy by which a person or a role may push to a repository."""
    parts = ECR_URL.fullmatch(url)
    assert parts is not None
    partition = "aws-cn" if parts["region"].startswith("cn-") else "aws"
    arn = f"arn:{partition}:ecr:{parts['region']}:{parts['registry']}:repository/{parts['name']}"
    everywhere, here = PUSH_ACTIONS[:1], PUSH_ACTIONS[1:]
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": list(everywhere), "Resource": "*"},
            {"Effect": "Allow", "Action": list(here), "Resource": arn},
        ],
    }


def _digest_by_protocol(url: str, tag: str) -> str:
    """Return the digest from the registry itself, by HEAD (OCI distribution spec, checking if content exists)."""
    import urllib3

    host, _, name = url.partition("/")
    scheme = "http" if re.match(r"(localhost|127\.0\.0\.1)(:|$)", host) else "https"
    kinds = ("vnd.oci.image.index.v1", "vnd.oci.image.manifest.v1")
    older = ("vnd.docker.distribution.manifest.list.v2", "vnd.docker.distribution.manifest.v2")
    accept = ", ".join(f"application/{kind}+json" for kind in (*kinds, *older))
    try:
        answer = urllib3.request(
            "HEAD", f"{scheme}://{host}/v2/{name}/manifests/{tag}", headers={"Accept": accept}, timeout=10, retries=2
        )
    except urllib3.exceptions.HTTPError as error:
        raise AwsError(f"the registry {host} cannot be reached: {error}") from None
    if answer.status not in (200, 404):
        raise AwsError(f"the registry {host} answers with {answer.status}")
    return str(answer.headers.get("Docker-Content-Digest", "")) if answer.status == 200 else ""
