"""Curves in MLflow, by a real server, and in Weights & Biases, offline; and servers that are not there."""

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from urllib.request import urlopen

import mlflow
import pytest
from gangs import free_port
from trainium_workloads.training.options import Options, add_options, options_of
from trainium_workloads.training.refusal import RefusalError

TOY = "toy_script"
BUSY = {"TRN_TRACKER_SECONDS": "300", "MLFLOW_HTTP_REQUEST_TIMEOUT": "300", "WANDB_INIT_TIMEOUT": "300"}
"""On a machine with other work a package needs longer to start than a toy's training takes."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory, port = tmp_path_factory.mktemp("mlflow"), free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    variables = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    command += ["--backend-store-uri", "sqlite:///runs.db"]
    process = subprocess.Popen(command, cwd=directory, env=variables, start_new_session=True)
    is_ready = False
    while not is_ready and process.poll() is None:
        with suppress(OSError), urlopen(f"{address}/health"):
            is_ready = True
        time.sleep(0.2)
    yield address
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_resumed_training_is_one_mlflow_run(gang, server):
    to_mlflow = {"MLFLOW_TRACKING_URI": server, "MLFLOW_EXPERIMENT_NAME": "toys", "TRN_JOB": "line-x7k2f", **BUSY}
    common = ("--output", "out", "--steps", 12, "--checkpoint-every", 4, "--no-async-checkpoint", "--track", "mlflow")
    killed = gang(TOY, *common, environment=to_mlflow, kill_at=6)
    resumed = gang(TOY, *common, environment=to_mlflow)
    assert min(resumed.losses) > 1
    assert "View run line-x7k2f at: http" in resumed.err[0]
    client = mlflow.MlflowClient(server)
    [run] = client.search_runs([client.get_experiment_by_name("toys").experiment_id])
    assert (run.info.run_name, run.info.status) == ("line-x7k2f", "FINISHED")
    assert {"learning_rate": "0.02", "model": "line", "width": "16"}.items() <= run.data.params.items()
    points = client.get_metric_history(run.info.run_id, "loss")
    assert {each.step: each.value for each in points} == {**killed.losses, **resumed.losses}
    assert {"tokens_per_second", "checkpoint_seconds"} <= run.data.metrics.keys()
    gang(TOY, *common, environment=to_mlflow)
    assert client.get_run(run.info.run_id).info.end_time == run.info.end_time, "there was nothing left to do"


def test_wandb_keeps_the_run_offline(gang, tmp_path):
    (tmp_path / "wandb").mkdir()  # of its own making, as a run without `dir` leaves it
    common = ("--output", "out", "--steps", 40, "--checkpoint-every", 4, "--track", "wandb")
    offline = {"WANDB_MODE": "offline", **BUSY}
    gang(TOY, *common, environment=offline, ranks=1, kill_at=6, kill_signal=signal.SIGTERM)
    time.sleep(1)  # wandb names a directory by the second, and no pod starts so soon again
    gang(TOY, *common, environment=offline, ranks=1)
    known = (tmp_path / "out" / "wandb-run").read_text()
    runs = sorted((tmp_path / "out" / "wandb").glob("offline-run-*"))
    assert [each.name.rpartition("-")[2] for each in runs] == [known, known]
    assert all(b"gradient_norm" in (each / f"run-{known}.wandb").read_bytes() for each in runs)


def test_unreachable_tracking_server_costs_only_a_line(gang):
    variables = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:1", "WANDB_API_KEY": "", "WANDB_MODE": "online", **BUSY}
    ended = gang(TOY, "--output", "out", "--steps", 30, "--track", "both", environment=variables, ranks=1, seconds=120)
    assert len(ended.steps) == 30
    assert max(line["step_seconds"] for line in ended.steps[1:]) < 3
    lines = [line.partition(",")[0] for line in ended.err[0].splitlines()]
    assert sorted(lines) == ["no curves in mlflow for now", "no curves in wandb for now"]


def test_missing_tracking_package_is_refused(monkeypatch, tmp_path):
    parser = argparse.ArgumentParser()
    add_options(parser, Options(precision="fp32"))
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    for each in ("mlflow", "wandb"):  # TRL imports them
        monkeypatch.delitem(sys.modules, each, raising=False)
    (tmp_path / "wandb").mkdir()
    with pytest.raises(RefusalError, match=r"--track mlflow needs the package mlflow.*--track wandb needs"):
        options_of(parser.parse_args(["--track", "both"]))
