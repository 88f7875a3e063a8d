"""What CloudWatch keeps of pods, read page by page, from a double of it."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from aws_double import AwsDouble
from aws_double import AwsError as Refused
from botocore.exceptions import NoCredentialsError

from trainium_eks.aws import sessions
from trainium_eks.aws.sessions import AwsError
from trainium_eks.jobs.watch import cloudwatch_logs
from trainium_eks.jobs.watch.cloudwatch_logs import CloudWatchLogs

REGION, GROUP = "us-west-2", "/trainium-eks/dev/containers"
BEGIN = datetime(2026, 11, 22, 5, 30, tzinfo=UTC)
ASK = "logs:FilterLogEvents"


@pytest.fixture
def logs(monkeypatch):
    """CloudWatch with answers that a test gives."""
    session = (double := AwsDouble({})).session()

    def client(name, region, *, attempts):
        retries = sessions.client(name, region, attempts).meta.config.retries
        assert (name, region, retries["total_max_attempts"]) == ("logs", REGION, 10)
        return session.client(name, region_name=region)

    monkeypatch.setattr(cloudwatch_logs, "client", client)
    return double


def _at(second):
    return int((BEGIN.timestamp() + second) * 1000)


def shipped(text, pod, **more):
    """As Fluent Bit makes it of a line."""
    kubernetes = {"namespace_name": "training", "pod_name": pod, "container_name": "trainer-0"}
    return json.dumps({"stream": "stdout", "log": text, "kubernetes": kubernetes, **more})


def event(second, stream, message):
    return {"logStreamName": f"{stream}/trainer-0", "timestamp": _at(second), "message": message}


def _read(prefix="training/", since=BEGIN):
    return [(pod, line.text) for pod, line in CloudWatchLogs(REGION, GROUP).lines(prefix, since)]


def test_lines_of_several_pods_are_merged_by_time(logs):
    first, second = "bert-trainer-0-0", "bert-trainer-1-0"
    written = {"time": f"{BEGIN:%Y-%m-%dT%H:%M}:02.0001Z"}
    found = [
        event(2, f"training/{second}", shipped("two", second, **written)),
        event(2, f"training/{first}", shipped("one\n", first)),
        event(3, f"other/{first}", "of another team"),
        event(13, f"training/{first}", "three, as it stands"),
        event(14, f"training/{second}", '{"step": 4, "log": "mine"}'),
    ]
    logs.answers[ASK] = {"events": found}
    assert _read() == [
        (first, "one"),
        (second, "two"),
        (first, "three, as it stands"),
        # What a training prints may look like what a log shipper makes of it.
        (second, '{"step": 4, "log": "mine"}'),
    ]
    late = _read(f"training/{first}/", BEGIN + timedelta(seconds=5))
    assert [text for _, text in late] == ["one", "three, as it stands"]
    asked = {"logGroupName": GROUP, "logStreamNamePrefix": f"training/{first}/", "startTime": _at(5)}
    assert logs.asked[-1] == (ASK, asked)


def test_line_has_its_own_or_its_events_time_and_all_pages_are_read(logs):
    for message, stamp in (
        (shipped("a", "p", time="2026-11-22T05:33:01.25Z"), "2026-11-22T05:33:01.250000000Z"),
        (shipped("a", "p", time="2026-11-22T06:33:01.25+01:00"), "2026-11-22T05:33:01.007000000Z"),
        (shipped("a", "p", time=1795325581.2), "2026-11-22T05:33:01.007000000Z"),
        ("a", "2026-11-22T05:33:01.007000000Z"),
    ):
        line = cloudwatch_logs.line_of({"message": message, "timestamp": 1795325581007})
        assert (line.stamp, line.text) == (stamp, "a")
    """CloudWatch may answer with no event and go on: it looks through so much at a time."""
    pages = [["a", "b"], [], ["c"]]

    def answer(asked):
        at = int(asked.get("nextToken", 0))
        more = {"nextToken": str(at + 1)} if at + 1 < len(pages) else {}
        return {"events": [event(at, "training/p", text) for text in pages[at]], **more}

    logs.answers[ASK] = answer
    assert [text for _, text in _read("training/p/")] == ["a", "b", "c"]


def test_unreadable_log_group_is_reported_with_the_fix(logs):
    for refused, said in (
        (Refused("AccessDeniedException"), f"logs:FilterLogEvents on arn:aws*:logs:*:*:log-group:{GROUP}:*"),
        (Refused("ExpiredTokenException"), "log in again (aws sso login)"),
        (Refused("ThrottlingException"), "again in a minute"),
        (Refused("InvalidParameterException", "the words of AWS"), "the words of AWS (InvalidParameterException)"),
        (Refused("ResourceNotFoundException"), "there is none in us-west-2: has the stack been updated (pulumi up)"),
        (NoCredentialsError(), "there are no AWS credentials here (aws configure, or aws sso login)"),
    ):
        logs.answers[ASK] = refused
        with pytest.raises(AwsError) as caught:
            _read()
        assert str(caught.value).startswith(f"cannot read the log group {GROUP}: ")
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
