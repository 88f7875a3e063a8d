"""What passes between the two processes of a recording."""

import json
from pathlib import Path

import pytest

from trainium_eks.plan.recording.assumptions import Assumptions
from trainium_eks.plan.recording.protocol import Answer, LiveBackend, RecordingRequest, Status, UnknownProtocolError


def request(**given: object) -> RecordingRequest:
    whole = {
        "project": "p",
        "stack": "dev",
        "program": "/p/__main__.py",
        "config": {"p:a": "1"},
        "secret_keys": ("p:a",),
        "dry_run": False,
        "timeout_seconds": 3.5,
        **given,
    }
    return RecordingRequest(**whole)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "asked",
    [
        request(),
        request(answer="/a", assumptions=Assumptions({"a:b:c": {"x": 1}}, {"s": {"y": [2]}})),
        request(live=LiveBackend("module:function", {"z": 1}, 7)),
    ],
)
def test_a_request_arrives_as_it_was_sent(asked: RecordingRequest) -> None:
    assert RecordingRequest.from_json(asked.to_json()) == asked


def test_an_answer_arrives_as_it_was_sent(tmp_path: Path) -> None:
    for answer in (
        Answer(Status.RECORDED, graph={"a": 1}),
        Answer(Status.FAILED, message="no", traceback="at"),
        Answer(Status.TIMEOUT, pending=("x", "y")),
    ):
        answer.write(tmp_path / "answer.json")
        assert Answer.read(tmp_path / "answer.json") == answer


def test_a_request_with_a_backend_is_not_simulated_by_who_does_not_know_it() -> None:
    assert json.loads(request(live=LiveBackend("m:f", {}, 7)).to_json())["protocol"] == 2
    assert json.loads(request().to_json())["protocol"] == 1


def test_another_version_is_refused_on_both_sides(tmp_path: Path) -> None:
    data = {**json.loads(request().to_json()), "protocol": 99}
    with pytest.raises(UnknownProtocolError) as caught:
        RecordingRequest.from_json(json.dumps(data))
    assert caught.value.version == 99
    (tmp_path / "answer.json").write_text(json.dumps({"protocol": 99, "status": "recorded", "graph": {}}))
    with pytest.raises(UnknownProtocolError):
        Answer.read(tmp_path / "answer.json")
