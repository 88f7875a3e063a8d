"""The study of ``examples/pipelines/optuna``: killed among its trials, and run to its end by the same command."""

import sqlite3
from pathlib import Path

import pytest
from pipelines.rig import EXAMPLES, Cloud, kill, tool
from waiting import until

REPORTING = "select distinct number, state from trials join trial_intermediate_values using (trial_id)"


def trials(folder, study, query="select number, state from trials"):
    """The states of the trials, by their numbers; with REPORTING, of those whose jobs have told a loss."""
    file = folder / f"{study}.db"
    if not file.is_file():
        return {}
    # Not read-only: a killed writer leaves a journal, which the next reader has to roll back.
    with sqlite3.connect(f"file:{file}?mode=rw", uri=True) as storage:
        try:
            return dict(storage.execute(query))
        except sqlite3.OperationalError:  # its tables are being made, or it is written to
            return {}


@pytest.mark.parametrize("by", ["python", "command"])
def test_killed_study_resumes_with_its_trials(cloud: Cloud, tmp_path: Path, by: str) -> None:
    optuna, study, log = tool("optuna", cloud, tmp_path), f"by-{by}", tmp_path / "log"
    program = ("python", str(EXAMPLES / "optuna" / "study.py"), "--outputs", str(cloud.outputs), "--study", study)
    command = (*program, "--by", by, "--image", "local/python", "--nodes", "1", "--at-once", "2", "--steps", "150")
    process = optuna.start(tmp_path, *command, log=log)
    try:
        until(lambda: len(trials(tmp_path, study, REPORTING)) == 2, log.read_text)
    finally:
        kill(process)
    assert list(trials(tmp_path, study).values()) == ["RUNNING"] * 2
    cloud.delete_pod(f"{study}-0")
    running = {name: uid for name, uid in cloud.jobs().items() if name.startswith(study)}
    log.unlink()
    process = optuna.start(tmp_path, *command, log=log)
    try:
        until(lambda: "found" in log.read_text(), log.read_text)
        second = optuna.start(tmp_path, *command, log=tmp_path / "second")
        assert second.wait(60) == 1, "two processes would take each other's trials over"
        until(lambda: process.poll() is not None, log.read_text, seconds=600)
        assert process.returncode == 0, log.read_text()
    finally:
        kill(process)
    said = log.read_text()
    assert all(f"found {name}" in said for name in running), said
    ended = trials(tmp_path, study)
    assert sorted(ended) == [*range(8)]
    assert set(ended.values()) == {"COMPLETE", "PRUNED"}, said
    complete = {f"{study}-{number}" for number, state in ended.items() if state == "COMPLETE"}
    left = {name: uid for name, uid in cloud.jobs().items() if name.startswith(study)}
    assert set(left) == complete, "the job of a pruned trial is gone, and none was submitted twice"
    assert left[f"{study}-0"] == running[f"{study}-0"], "today's rate is never pruned"
    assert cloud.status(f"{study}-0")["retryCount"] == 1
    assert "Traceback" not in said
    assert f"8 trials, {8 - len(complete)} pruned; best: trial " in said
