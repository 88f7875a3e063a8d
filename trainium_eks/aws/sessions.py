"""Sessions of boto3, and look-ups for the submission of jobs: images in ECR, ends of Capacity Blocks, sizes of node
groups.

Does I/O, by boto3, with the caller's credentials.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trainium_eks.kube.errors import ClusterError, MissingError
from trainium_eks.model.catalogue.training_images import MIRROR_PREFIX
from trainium_eks.model.machine_faults import machine_fault
from trainium_eks.model.validation.problems import Problem, nearest

ECR_URL = re.compile(r"(?P<registry>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/(?P<name>[^:@]+)")
NO_BOTO3 = "the Python package boto3 is missing: pip install 'trainium-eks[local]'"
NOT_ALLOWED = ("AccessDeniedException", "AccessDenied", "UnauthorizedOperation")


class AwsError(ClusterError):
    """AWS refused, or could not be queried; the text is for people."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code
        """Error code of AWS (``ImageNotFoundException``), where it answered."""


class CannotAskError(AwsError, MissingError):
    """There are no credentials, or no boto3."""


class NotAllowedError(AwsError):
    """The caller's role may not do it."""


@dataclass(frozen=True)
class GroupSize:
    """The size of a node group in EKS."""

    desired: int
    least: int
    most: int
    status: str
    """``ACTIVE``, ``UPDATING``, ``DEGRADED``, …"""
    issues: tuple[str, ...] = ()
    """Problems that EKS reports: no capacity, for instance."""


class Aws:
    """Client of AWS in one region. Its methods raise :class:`AwsError` where AWS cannot be queried, or refuses."""

    def __init__(self, region: str) -> None:
        self._region = region

    def newest_image(self, repository: str) -> str:
        """Return the image that was pushed last to an ECR repository, by its tag; empty for none."""
        pushed = [
            (each["imagePushedAt"], tag)
            for each in self._images(repository, {"filter": {"tagStatus": "TAGGED"}})
            for tag in each.get("imageTags") or ()
            # Copies of other images are there to be built on.
            if not tag.startswith(MIRROR_PREFIX)
        ]
        return f"{repository}:{max(pushed)[1]}" if pushed else ""

    def image_problem(self, image: str) -> Problem | None:
        """Return the reason why an image cannot be pulled, or None. Other registries than ECR are not queried."""
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
        """Return the end of a Capacity Block, RFC 3339; empty for a reservation without an end."""
        with saying(f"ask when the Capacity Block {reservation} ends"):
            answer = client("ec2", self._region).describe_capacity_reservations(CapacityReservationIds=[reservation])
        ends = answer["CapacityReservations"][0].get("EndDate")
        return ends.strftime("%Y-%m-%dT%H:%M:%SZ") if ends else ""

    def group_size(self, cluster: str, group: str) -> GroupSize:
        """Return the size of a managed node group."""
        with saying(f"look at the node group {group}"):
            found = client("eks", self._region).describe_nodegroup(clusterName=cluster, nodegroupName=group)[
                "nodegroup"
            ]
        scaling = found["scalingConfig"]
        issues = tuple(f"{each['code']}: {each['message']}" for each in found.get("health", {}).get("issues", ()))
        return GroupSize(scaling["desiredSize"], scaling["minSize"], scaling["maxSize"], found["status"], issues)

    def scale(self, cluster: str, group: str, nodes: int) -> None:
        """Request a number of nodes from EKS; do not wait for them."""
        with saying(f"scale the node group {group}"):
            client("eks", self._region).update_nodegroup_config(
                clusterName=cluster, nodegroupName=group, scalingConfig={"desiredSize": nodes}
            )


def client(service: str, region: str, attempts: int | None = None) -> Any:
    """Return a client of boto3, which loads slowly and is not needed for a local cloud."""
    return connect(
        service, region, retries={"mode": "standard", **({"total_max_attempts": attempts} if attempts else {})}
    )


def connect(service: str, region: str, session: Any = None, **config: Any) -> Any:
    """Return a client of boto3 that takes answers of AWS alone. Every client of this library is made here.

    botocore takes a proxy's page with status 200 for an answer without any field, so that every list of the account's
    resources would be empty: the client's operations raise :class:`NotAnsweredError`. Pages with status 500 and above
    are left to botocore's retries."""
    import boto3  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]

    made = (session or boto3).client(service, region_name=region, config=Config(**config))
    made.meta.events.register("before-parse", _refuse_pages)
    return made


class NotAnsweredError(Exception):
    """Something other than AWS answered a request."""


_PAGE = (b"<!doctype html", b"<html")
"""Marks in the beginning of a web page; in an XHTML page they follow the XML declaration."""


def _refuse_pages(operation_model: Any, response_dict: Any, **_: object) -> None:
    """Handle botocore's event ``before-parse``. The body of a streamed answer is no bytes; broken XML is found by
    botocore itself."""
    body, status = response_dict.get("body"), response_dict["status_code"]
    if status >= 500 or not isinstance(body, bytes):
        return
    head = body[:1024].lstrip().lower()
    if head.startswith(b"<") and any(each in head for each in _PAGE):
        raise NotAnsweredError(f"a web page came with HTTP {status} in place of an answer of AWS")
    if body and operation_model.service_model.resolved_protocol in ("json", "rest-json"):
        try:
            json.loads(body)
        except ValueError:
            raise NotAnsweredError(f"what came with HTTP {status} is no answer of AWS") from None


def why_not_answered(error: Exception) -> str | None:
    """Return in one line why there is no answer of AWS, or None for an answer and for an error that boto3 did not
    raise."""
    from botocore.exceptions import (  # type: ignore[import-untyped]
        BotoCoreError,
        ConnectionError,
        HTTPClientError,
    )
    from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

    first = next(iter(str(error).strip().splitlines()), "")
    if lacks_credentials(error):
        return "there are no AWS credentials here (aws configure, or aws sso login)"
    if isinstance(error, NotAnsweredError | ResponseParserError):
        found = first if isinstance(error, NotAnsweredError) else "what came is no answer of AWS"
        return f"{found}: look at the proxy between here and AWS (HTTPS_PROXY, NO_PROXY)"
    if fault := machine_fault(error):
        return fault
    if isinstance(error, ConnectionError | HTTPClientError):
        return f"no network: {first}"
    return first if isinstance(error, BotoCoreError) else None


def lacks_credentials(error: Exception) -> bool:
    """Return whether boto3 found no complete credentials on this machine."""
    from botocore.exceptions import NoCredentialsError, PartialCredentialsError

    return isinstance(error, NoCredentialsError | PartialCredentialsError)


@contextmanager
def saying(what: str) -> Iterator[None]:
    """Turn errors of AWS, and of the way there, into :class:`AwsError`: ``cannot <what>``."""
    try:
        from botocore.exceptions import ClientError
    except ModuleNotFoundError:
        raise CannotAskError(NO_BOTO3) from None
    try:
        yield
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
        kind = NotAllowedError if code in NOT_ALLOWED else AwsError
        raise kind(f"cannot {what}: {message} ({code})", code) from None
    except Exception as error:
        reason = why_not_answered(error)
        if reason is None:
            raise
        kind = CannotAskError if lacks_credentials(error) else AwsError
        raise kind(f"cannot {what}: {reason}") from None
