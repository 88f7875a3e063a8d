"""`make destroy`: what it says and does before pulumi begins."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cleanup_accounts import state
from stub_api import serving

from trainium_eks.aws import sessions
from trainium_eks.cli.environment import destroy
from trainium_eks.client.failure import CommandError
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.operate.cleanup import exporting
from trainium_eks.operate.cleanup.state import StackState, StateError
from trainium_eks.plan.graph import Graph, Options, Resource

FILES = "fs-0123456789abcdef0"
LINKED = state((exporting.ASSOCIATION, "dra-1", {"fileSystemId": FILES}))
LINK = Resource("u1", exporting.ASSOCIATION, "link")
GRAPH = Graph("p", "prod", (LINK,), {})


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """File systems that were exported, with the seconds that it might take."""
    done: list[tuple[str, float]] = []

    class Export:
        def __init__(self, _fsx: object, region: str, name: str, _say: object, patience: exporting.Patience) -> None:
            assert region == "us-west-2"
            self.asked = (name, patience.seconds)

        def run(self) -> None:
            done.append(self.asked)

        def resume(self) -> str:
            return "  aws fsx update-data-repository-association"

    monkeypatch.setattr(exporting, "Export", Export)
    monkeypatch.setattr(sessions, "client", lambda *_: None)
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    return done


Prepare = Callable[..., list[str]]


@pytest.fixture
def prepare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Prepare:
    """Prepares the destroy of a stack whose file system is linked."""
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    monkeypatch.setattr(StackState, "ask", staticmethod(lambda *_: LINKED))
    return lambda *arguments: destroy.prepare(GRAPH, tmp_path, list(arguments))


def test_linked_file_systems_are_exported_before_pulumi_begins(
    prepare: Prepare, exported: list[tuple[str, float]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare("--yes", "--export-minutes=30") == ["--yes"]
    assert exported == [(FILES, 1800)]
    shown = capsys.readouterr().out
    assert f"Exporting {FILES} to S3 before anything is destroyed (at most 30 minutes" in shown
    assert "If you do not destroy the stack now" in shown


def test_no_export_says_what_is_lost_and_a_preview_exports_nothing(
    prepare: Prepare, exported: list[tuple[str, float]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare("--preview-only") == ["--preview-only"]
    assert "is lost" not in capsys.readouterr().out
    assert prepare("--no-export") == []
    assert f"what S3 lacks of {FILES} is lost" in capsys.readouterr().out
    assert exported == []


def test_an_export_that_fails_stops_the_destroy(
    prepare: Prepare, exported: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise exporting.NotExportedError("2 files were not written")

    monkeypatch.setattr(exporting.Export, "run", refuse)
    with pytest.raises(CommandError, match="2 files were not written"):
        prepare()


def test_an_unreadable_state_stops_only_what_may_hold_unexported_files(
    prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(stack: str, project: Path) -> StackState:
        raise StateError("no stack named 'prod' found")

    monkeypatch.setattr(StackState, "ask", staticmethod(refuse))
    with pytest.raises(CommandError, match="no stack named 'prod' found") as stopped:
        prepare()
    assert "--no-export. What S3 lacks is lost then" in stopped.value.title
    assert prepare("--no-export") == []
    assert destroy.prepare(Graph("p", "dev", (), {}), tmp_path, ["-y"]) == ["-y"]


@pytest.mark.parametrize("minutes", ["0", "-5", "soon", "20000", "nan", ""])
def test_a_time_that_is_none_is_refused(minutes: str) -> None:
    with pytest.raises(CommandError, match="a number of minutes, more than 0 and at most 10080"):
        destroy.export_minutes([f"--export-minutes={minutes}"])


@pytest.mark.parametrize(
    ("jobs", "confirmed", "stops"),
    [(["training/bert"], False, True), (["training/bert"], True, False), ([], False, False), (None, False, False)],
)
def test_running_jobs_are_named_and_nobody_agreed_for_a_script(
    jobs: list[str] | None, confirmed: bool, stops: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CommandError, match="Nothing was destroyed") if stops else nullcontext():
        destroy.agree_to_end(jobs, confirmed=confirmed)
    assert ("1 job has not ended: training/bert" in capsys.readouterr().out) == bool(jobs)


def test_what_stays_is_listed_with_what_it_goes_on_costing() -> None:
    kept, plain = Options(retain_on_delete=True), Options()
    backed = {"skipFinalBackup": False}
    resources = (
        Resource("u1", "aws:kms/key:Key", "key", options=kept),
        Resource("u2", "aws:s3/bucket:Bucket", "bucket", options=kept),
        Resource("u3", destroy.LUSTRE, "files", inputs=backed),
        Resource("u4", "aws:kms/key:Key", "other", options=plain),
        Resource("u5", destroy.LUSTRE, "scratch", options=plain),
    )
    lines = list(destroy.goes_on_costing(Graph("p", "dev", resources, {})))
    assert [line.split(":")[0].strip() for line in lines] == ["key", "bucket", "the last backup of files"]
    assert "$1.00 a month" in lines[0]
    assert "$0.023 a month for each GiB" in lines[1]
    assert "$0.05 a month for each GiB" in lines[2]


def test_jobs_of_all_teams_are_read_from_the_stacks_own_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [_job("training", "bert", "Running"), _job("research", "old", "Completed"), _job("research", "q", "Pending")]
    with serving({"Job": jobs}) as api:
        known = SimpleNamespace(kubeconfig=json.dumps(api.kubeconfig))
        monkeypatch.setattr(StackOutputs, "load", lambda *_, **__: known)
        assert destroy.running_jobs("dev", tmp_path) == ["research/q", "training/bert"]
    assert destroy.running_jobs("dev", tmp_path) is None
    assert "Cannot ask the cluster which jobs run" in capsys.readouterr().err


def _job(namespace: str, name: str, phase: str) -> dict[str, Any]:
    when = "2026-11-22T10:00:00Z"
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": when},
        "spec": {"queue": "test", "minAvailable": 1, "tasks": [{"replicas": 1, "template": {"spec": {}}}]},
        "status": {"state": {"phase": phase, "lastTransitionTime": when}},
    }
