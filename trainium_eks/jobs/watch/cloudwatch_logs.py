"""The containers' logs of a stack on AWS, as CloudWatch Logs keeps them: read by boto3 with the caller's credentials.

Each container of a pod has a stream, ``<namespace>/<pod>/<container>``. An event is a JSON object of the log shipper,
with the line in ``log`` beside its facts about the pod in ``kubernetes``; any other text is a line as it stands.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from trainium_eks.aws.sessions import AwsError, NotAllowedError, client, saying
from trainium_eks.jobs.watch.log_lines import LogLine, parse
from trainium_eks.kube.pod_text import REPORT_CHARACTERS, json_object

ATTEMPTS = 10
"""Attempts of each request: an account has 5 to 25 a second for all that read its logs (CloudWatch Logs quotas)."""

_STREAM = re.compile(r"(?P<namespace>[^/]+)/(?P<pod>[^/]+)/(?P<container>[^/]+)")
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "UnrecognizedClientException", "InvalidClientTokenId")
_UTC_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")


class CloudWatchLogs:
    """A stack's log group."""

    def __init__(self, region: str, group: str) -> None:
        self._region, self._group = region, group

    def lines(self, prefix: str, since: datetime) -> Iterator[tuple[str, LogLine]]:
        """Yield pod and line of all streams with a prefix, in the order of time. The prefix is ``<namespace>/<pod>/``,
        or ``<namespace>/<job>-`` for many."""
        try:
            for page in pages_of(self._region, self._group, prefix, int(since.timestamp() * 1000)):
                yield from _in_order(page)
        except AwsError as error:
            raise self._with_fix(error) from None

    def _with_fix(self, error: AwsError) -> AwsError:
        if isinstance(error, NotAllowedError):
            fix = f"your AWS identity needs logs:FilterLogEvents on arn:aws*:logs:*:*:log-group:{self._group}:*"
        elif error.code == "ResourceNotFoundException":
            fix = f"there is none in {self._region}: has the stack been updated (pulumi up) since its logs are kept?"
        elif error.code in _EXPIRED:
            fix = "your AWS credentials have expired: log in again (aws sso login)"
        elif error.code == "ThrottlingException":
            fix = "too much is read in this account just now: again in a minute"
        else:
            return error
        return AwsError(f"{error}; {fix}", error.code)


def pages_of(region: str, group: str, prefix: str, since_ms: int) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the events of a log group, page by page, of all streams with a prefix."""
    with saying(f"read the log group {group}"):
        logs = client("logs", region, attempts=ATTEMPTS).get_paginator("filter_log_events")
        for page in logs.paginate(logGroupName=group, logStreamNamePrefix=prefix, startTime=since_ms):
            # Compared here, too: another team's lines must not show where a stand-in for AWS, such as moto, does not
            # know prefixes.
            yield [each for each in page["events"] if each["logStreamName"].startswith(prefix)]


def _in_order(events: Iterable[Mapping[str, Any]]) -> list[tuple[str, LogLine]]:
    """Return the lines of a page in order. CloudWatch sorts by milliseconds, and lines know when they were written to
    the nanosecond."""
    found = []
    for event in events:
        stream = _STREAM.fullmatch(event["logStreamName"])
        if stream is not None:
            found.append((stream["pod"], line_of(event)))
    return sorted(found, key=lambda each: each[1].stamp)


def line_of(event: Mapping[str, Any]) -> LogLine:
    """Return the line of an event, with its time as the API server gives it with a pod's log."""
    message = str(event["message"])
    said = _shipped(message)
    text = (message if said is None else str(said["log"])).removesuffix("\n")
    written = "" if said is None else str(said.get("time", ""))
    if _UTC_STAMP.fullmatch(written):
        return LogLine(parse(written).stamp, text)
    at = datetime.fromtimestamp(event["timestamp"] / 1000, UTC)
    return LogLine(f"{at:%Y-%m-%dT%H:%M:%S}.{event['timestamp'] % 1000:03d}000000Z", text)


def _shipped(message: str) -> Mapping[str, Any] | None:
    """Return the log shipper's object; None for another text. Trainings print JSON objects, too, which are lines and no
    such thing."""
    said = json_object(message, REPORT_CHARACTERS) if message.startswith("{") else None
    return said if said is not None and "log" in said and isinstance(said.get("kubernetes"), dict) else None
