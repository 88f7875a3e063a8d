"""What CloudWatch keeps of pods, read page by page, from moto's copy of it."""

import json
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from moto import mock_aws

from trainium_eks.aws import sessions
from trainium_eks.aws.sessions import AwsError
from trainium_eks.jobs.watch import cloudwatch_logs
from trainium_eks.jobs.watch.cloudwatch_logs import CloudWatchLogs

REGION, GROUP = "us-west-2", "/trainium-eks/dev/containers"
BEGIN = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
"""CloudWatch takes nothing that is older than two weeks."""


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield


@pytest.fixture
def logs():
    client = boto3.client("logs", region_name=REGION)
    client.create_log_group(logGroupName=GROUP)
    return client


def _at(seconds):
    return int((BEGIN.timestamp() + seconds) * 1000)


def shipped(text, pod, **more):
    """As Fluent Bit makes it of a line."""
    kubernetes = {"namespace_name": "training", "pod_name": pod, "container_name": "trainer-0"}
    return json.dumps({"stream": "stdout", "log": text, "kubernetes": kubernetes, **more})


def _put(logs, pod, *events, namespace="training"):
    stream = {"logGroupName": GROUP, "logStreamName": f"{namespace}/{pod}/trainer-0"}
    logs.create_log_stream(**stream)
    made = [{"timestamp": _at(second), "message": message} for second, message in events]
    logs.put_log_events(**stream, logEvents=made)


def _read(prefix="training/", since=BEGIN):
    return [(pod, line.text) for pod, line in CloudWatchLogs(REGION, GROUP).lines(prefix, since)]


def test_lines_of_several_pods_come_in_the_order_of_time_and_only_what_is_asked_for_is_read(logs):
    _put(logs, "bert-trainer-0-0", (1, shipped("one\n", "bert-trainer-0-0")), (13, "three, as it stands"))
    _put(logs, "bert-trainer-0-0", (3, "of another team"), namespace="other")
    _put(logs, "bert-trainer-1-0", (2, shipped("two", "bert-trainer-1-0")), (14, '{"step": 4, "log": "mine"}'))
    assert _read() == [
        ("bert-trainer-0-0", "one"),
        ("bert-trainer-1-0", "two"),
        ("bert-trainer-0-0", "three, as it stands"),
        # What a training prints may look like what a log shipper makes of it.
        ("bert-trainer-1-0", '{"step": 4, "log": "mine"}'),
    ]
    late = _read("training/bert-trainer-0-0/", BEGIN + timedelta(seconds=5))
    assert late == [("bert-trainer-0-0", "three, as it stands")]


@pytest.mark.parametrize(
    ("message", "stamp"),
    [
        (shipped("a", "p", time="2026-11-22T05:33:01.25Z"), "2026-11-22T05:33:01.250000000Z"),
        (shipped("a", "p", time="2026-11-22T06:33:01.25+01:00"), "2026-11-22T05:33:01.007000000Z"),
        (shipped("a", "p", time=1795325581.2), "2026-11-22T05:33:01.007000000Z"),
        ("a", "2026-11-22T05:33:01.007000000Z"),
    ],
)
def test_a_line_has_its_own_time_or_that_of_its_event(message, stamp):
    event = {"message": message, "timestamp": 1795325581007}
    line = cloudwatch_logs.line_of(event)
    assert (line.stamp, line.text) == (stamp, "a")


def test_all_pages_are_read_empty_ones_too(monkeypatch, logs):
    """CloudWatch may answer with no event and go on: it looks through so much at a time."""
    pages = [["a", "b"], [], ["c"]]
    asked = []

    def answer(self, operation, given):
        assert operation == "FilterLogEvents"
        asked.append(given)
        at = int(given.get("nextToken", 0))
        about = {"logStreamName": "training/p/c", "timestamp": _at(at)}
        events = [{**about, "message": each, "eventId": each} for each in pages[at]]
        return {"events": events, **({"nextToken": str(at + 1)} if at + 1 < len(pages) else {})}

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", answer)
    assert [text for _, text in _read("training/p/")] == ["a", "b", "c"]
    assert [each.get("nextToken") for each in asked] == [None, "1", "2"]
    wanted = {"logGroupName": GROUP, "logStreamNamePrefix": "training/p/", "startTime": _at(0)}
    assert all(wanted.items() <= each.items() for each in asked)


@pytest.fixture
def refuse(monkeypatch):
    """Makes requests fail before they are sent, and waits for no time between them."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)
    whole = sessions.client

    def refuse(times, code, message="no"):
        refusals = [json.dumps({"__type": code, "message": message}).encode()] * times

        def answer(request, **_):
            if not refusals:
                return None
            made = AWSResponse(request.url, 400, {"Content-Type": "application/x-amz-json-1.1"}, None)
            made._content = refusals.pop()
            return made

        def client(*given, **more):
            made = whole(*given, **more)
            made.meta.events.register_first("before-send.cloudwatch-logs", answer)
            return made

        monkeypatch.setattr(cloudwatch_logs, "client", client)

    return refuse


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        ("AccessDeniedException", f"logs:FilterLogEvents on arn:aws*:logs:*:*:log-group:{GROUP}:*"),
        ("ExpiredTokenException", "log in again (aws sso login)"),
        ("ThrottlingException", "again in a minute"),
        ("InvalidParameterException", "cannot read the log group"),
    ],
)
def test_what_cannot_be_read_is_a_line_with_what_mends_it(logs, refuse, code, fix):
    _put(logs, "p", (1, "a"))
    refuse(6, "ThrottlingException")
    assert _read() == [("p", "a")], "it asks again where too much is asked"
    refuse(100, code, "the words of AWS")
    with pytest.raises(AwsError) as caught:
        _read()
    assert fix in str(caught.value)
    assert f"the words of AWS ({code})" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_a_group_or_credentials_it_says_so(monkeypatch):
    with pytest.raises(AwsError, match=r"there is none in us-west-2: has the stack been updated \(pulumi up\)"):
        _read()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it has found some before
    with pytest.raises(AwsError, match=r"there are no AWS credentials here \(aws configure, or aws sso login\)"):
        _read()
