"""The last lines of a pod's log: of the container that failed."""

from typing import Any

import pytest

from trainium_eks.kube import pod_logs
from trainium_eks.kube.api import Api

FAILED = {"state": {"terminated": {"exitCode": 3}}}
DONE = {"state": {"terminated": {"exitCode": 0}}, "ready": True}


@pytest.mark.parametrize(
    ("phase", "init", "own", "previous", "asked"),
    [
        ("Running", [DONE], [{}, {}], False, "a"),
        ("Failed", [DONE], [DONE, FAILED], False, "b"),
        ("Failed", [FAILED], [{}, {}], False, "i"),
        ("Running", [DONE], [FAILED, {}], True, "a"),
        ("Running", [DONE], [{}, {"lastState": FAILED["state"]}], True, "b"),
    ],
)
def test_the_log_is_that_of_the_container_that_failed(
    phase: str, init: list[Any], own: list[Any], previous: bool, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def text(*_: object, query: dict[str, str], **__: object) -> str:
        return query["container"]

    api = Api.__new__(Api)
    monkeypatch.setattr(api, "text", text)
    statuses = {
        "initContainerStatuses": [{"name": "i", **each} for each in init],
        "containerStatuses": [{"name": name, **each} for name, each in zip("ab", own, strict=True)],
    }
    spec = {"containers": [{"name": "a"}, {"name": "b"}]}
    pod = {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase, **statuses}}
    assert pod_logs.tail(api, "lab", pod, previous=previous) == [asked]
