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
        """Return the host."""
        return self.url.partition("/")[0]

    @property
    def _place(self) -> re.Match[str]:
        """Return the account, the region and the name. AwsError: the URL is none of ECR's."""
        found = ECR_URL.fullmatch(self.url)
        if found is None:
            raise AwsError(f"{self.url} is no image repository of ECR: export the stack's outputs again")
        return found

    def digest(self, tag: str) -> str:
        """Return the digest of the image with this tag, or an empty string."""
        parts = self._place
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

    def login(self) -> Login:
        """Return a login."""
        parts = self._place
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
                f"{error}\n  What pushing takes: {json.dumps(policy(self._place))}", error.code
            )
        return error


def policy(parts: re.Match[str]) -> dict[str, Any]:
    """Return the IAM policy by which a person or a role may push to a repository, a match of ``ECR_URL``."""
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
