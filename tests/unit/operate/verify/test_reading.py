"""Reading a cluster in parallel, what could not be read, and the local cloud's report."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from waiting import SECONDS

from trainium_eks.kube.cluster import KINDS, Object, ReadError, minor, read
from trainium_eks.operate.verify.local_report import LocalReport, ReportError


class Scripted:
    """A cluster whose answers are given; lists wait until all are asked, so only parallel reading ends."""

    def __init__(self, answers: dict[str, Any], together: bool = False) -> None:
        self.answers = answers
        self.barrier = threading.Barrier(len(KINDS)) if together else None

    def version(self) -> str:
        if "version" in self.answers:
            raise ReadError(self.answers["version"])
        return "v1.35.4"

    def list(self, api_version: str, kind: str) -> Sequence[Object] | None:
        assert KINDS[kind] == api_version
        if self.barrier:
            self.barrier.wait(SECONDS)
        answer = self.answers.get(kind, [])
        if isinstance(answer, ReadError):
            raise answer
        return answer  # type: ignore[no-any-return]


def test_all_kinds_are_read_at_the_same_time_and_what_may_not_be_read_is_remembered() -> None:
    node = {"metadata": {"name": "n"}}
    answers = {"Node": [node], "Queue": None, "HyperNode": ReadError("hypernodes is forbidden")}
    cluster = read(Scripted(answers, together=True))
    assert cluster.of("Node") == (node,)
    assert (cluster.of("Queue"), cluster.unserved) == ((), {"Queue"})
    assert cluster.unread == {"HyperNode": "hypernodes is forbidden"}


def test_a_server_that_gives_no_version_is_not_read() -> None:
    with pytest.raises(ReadError, match="connection refused"):
        read(Scripted({"version": "connection refused", "Node": AssertionError}))


def test_a_version_of_eks_is_read() -> None:
    assert minor("v1.35.4-eks-1a2b3c4") == (1, 35)
    with pytest.raises(ValueError, match="is no version"):
        minor("")


REPORT = {
    "schemaVersion": 1,
    "local": True,
    "notInstalled": [{"name": "volcano", "reason": "no chart"}],
    "simulated": ["aws"],
    "realVolcano": False,
}


def test_a_report_is_read(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(REPORT))
    report = LocalReport.load(file, {"etcd"})
    assert report == LocalReport({"volcano": "no chart"}, ("aws",), real_volcano=False, running=frozenset({"etcd"}))
    assert (report.missing("volcano"), report.missing("neuron")) == ("no chart", "")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", json.dumps({**REPORT, "schemaVersion": 2}), json.dumps({**REPORT, "local": False})]
)
def test_what_is_no_report_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(text)
    with pytest.raises(ReportError, match=r"report\.json is not the report"):
        LocalReport.load(file)
    with pytest.raises(ReportError, match="cannot read"):
        LocalReport.load(tmp_path / "none.json")
