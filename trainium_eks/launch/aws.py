"""What AWS is asked for when jobs are submitted: images in ECR, ends of Capacity Blocks, sizes of node groups.

Does I/O, by boto3, with the credentials of whoever calls.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trainium_eks.launch.images import MIRROR_PREFIX
from trainium_eks.local.changes import LocalError, MissingError
from trainium_eks.model.problems import Problem, nearest

ECR_URL = re.compile(r"(?P<registry>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/(?P<name>[^:@]+)")
NOT_ALLOWED = ("AccessDeniedException", "AccessDenied", "UnauthorizedOperation")


class AwsError(LocalError):
    """AWS refused, or could not be asked; the text is for people."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code
        """AWS' own (``ImageNotFoundException``), where it answered."""


class CannotAsk(AwsError, MissingError):  # noqa: N818 - reads as what it is where it is caught
    """There are no credentials, or no boto3."""


class NotAllowed(AwsError):  # noqa: N818 - reads as what it is where it is caught
    """The caller's role may not do it."""


@dataclass(frozen=True)
class GroupSize:
    """A node group, as EKS has it."""

    desired: int
    least: int
    most: int
    status: str
    """``ACTIVE``, ``UPDATING``, ``DEGRADED``, …"""
    issues: tuple[str, ...] = ()
    """What EKS says is wrong with it: no capacity, for instance."""


class Aws:
    """AWS in one region."""

    def __init__(self, region: str) -> None:
        self._region = region

    def newest_image(self, repository: str) -> str:
        """The image that was pushed last to an ECR repository, by its tag; empty for none.

        Args:
            repository: its URL.

        Raises:
            AwsError: ECR cannot be asked.
        """
        pushed = [
            (each["imagePushedAt"], tag)
            for each in self._images(repository, {"filter": {"tagStatus": "TAGGED"}})
            for tag in each.get("imageTags") or ()
            # What others made is there to be built on.
            if not tag.startswith(MIRROR_PREFIX)
        ]
        return f"{repository}:{max(pushed)[1]}" if pushed else ""

    def image_problem(self, image: str) -> Problem | None:
        """Why an image cannot be pulled, or None. Other registries than ECR are not asked.

        Args:
            image: with its tag or digest.

        Raises:
            AwsError: ECR cannot be asked.
        """
        repository = re.split(r"[:@]", image.rpartition("/")[2])[0]
        base = f"{image.rpartition('/')[0]}/{repository}"
        if not ECR_URL.fullmatch(base):
            return None
        rest = image.removeprefix(base)
        wanted = rest.removeprefix("@") if rest.startswith("@") else rest.removeprefix(":") or "latest"
        images = list(self._images(base, {}))
        tags = [tag for each in images for tag in each.get("imageTags") or ()]
        if wanted in tags or any(each["imageDigest"] == wanted for each in images):
            return None
        near = nearest(wanted, tags)
        reason = f"the repository has no image {wanted}" if images else "the repository has no image yet"
        good = f"{base}:{near}" if near else None
        return Problem("--image", reason, "build and push it: trn image push", value=image, good=good)

    def _images(self, repository: str, query: dict[str, Any]) -> Iterator[dict[str, Any]]:
        place = ECR_URL.fullmatch(repository)
        if place is None:
            return
        with saying(f"look into the image repository {repository}"):
            ecr = client("ecr", place["region"])
            pages = ecr.get_paginator("describe_images").paginate(
                registryId=place["registry"], repositoryName=place["name"], **query
            )
            for page in pages:
                yield from page["imageDetails"]

    def capacity_ends(self, reservation: str) -> str:
        """When a Capacity Block ends, RFC 3339; empty for a reservation without an end.

        Raises:
            AwsError: EC2 cannot be asked.
        """
        with saying(f"ask when the Capacity Block {reservation} ends"):
            answer = client("ec2", self._region).describe_capacity_reservations(CapacityReservationIds=[reservation])
        ends = answer["CapacityReservations"][0].get("EndDate")
        return ends.strftime("%Y-%m-%dT%H:%M:%SZ") if ends else ""

    def group_size(self, cluster: str, group: str) -> GroupSize:
        """The size of a managed node group.

        Raises:
            AwsError: EKS cannot be asked.
        """
        with saying(f"look at the node group {group}"):
            found = client("eks", self._region).describe_nodegroup(clusterName=cluster, nodegroupName=group)[
                "nodegroup"
            ]
        scaling = found["scalingConfig"]
        issues = tuple(f"{each['code']}: {each['message']}" for each in found.get("health", {}).get("issues", ()))
        return GroupSize(scaling["desiredSize"], scaling["minSize"], scaling["maxSize"], found["status"], issues)

    def scale(self, cluster: str, group: str, nodes: int) -> None:
        """Asks EKS for a number of nodes; does not wait for them.

        Raises:
            AwsError: EKS refuses.
        """
        with saying(f"scale the node group {group}"):
            client("eks", self._region).update_nodegroup_config(
                clusterName=cluster, nodegroupName=group, scalingConfig={"desiredSize": nodes}
            )


def client(service: str, region: str, attempts: int | None = None) -> Any:
    """A client of boto3, which loads slowly and is not needed for a local cloud.

    Args:
        service: of AWS.
        region: of AWS.
        attempts: of each request, further apart each time; None for boto3's own number.
    """
    import boto3  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]

    retries = {"mode": "standard", **({"total_max_attempts": attempts} if attempts else {})}
    return boto3.client(service, region_name=region, config=Config(retries=retries))


@contextmanager
def saying(what: str) -> Iterator[None]:
    """Turns AWS' errors into ours.

    Args:
        what: was tried, after "cannot".
    """
    try:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise CannotAsk("the Python package boto3 is missing: pip install 'trainium-eks[local]'") from None
    try:
        yield
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
        kind = NotAllowed if code in NOT_ALLOWED else AwsError
        raise kind(f"cannot {what}: {message} ({code})", code) from None
    except NoCredentialsError:
        raise CannotAsk(f"cannot {what}: there are no AWS credentials here (aws configure, or aws sso login)") from None
    except BotoCoreError as error:
        raise AwsError(f"cannot {what}: {error}") from None
