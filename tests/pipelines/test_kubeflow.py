"""The pipeline of ``examples/pipelines/kubeflow``, compiled, and run by kfp's local runner over kills of both sides."""

import os
import signal

import psutil
import yaml
from pipelines.rig import EXAMPLES, kill, tool
from waiting import until


def test_a_killed_pipeline_finds_its_job(cloud, tmp_path):
    kubeflow, log = tool("kubeflow", cloud, tmp_path), tmp_path / "log"
    program = ("python", str(EXAMPLES / "kubeflow" / "pipeline.py"))
    assert kubeflow.start(tmp_path, *program, "compile", log=log).wait(60) == 0, log.read_text()
    compiled = yaml.safe_load((tmp_path / "training.yaml").read_text())
    assert set(compiled["root"]["dag"]["tasks"]) == {"preprocess", "train", "evaluate"}
    options = ("--name", "kubeflow", "--outputs", str(cloud.outputs), "--image", "local/python", "--examples", "4000")
    command = (*program, "run", *options)

    process = kubeflow.start(tmp_path, *command, log=log)
    try:
        until(lambda: "submitted kubeflow" in log.read_text(), log.read_text)
        cloud.await_step("kubeflow")
    finally:
        kill(process)
    uid = cloud.jobs()["kubeflow"]
    [agent] = [each for each in psutil.process_iter(["name", "cmdline"]) if _is_agent(each, cloud)]
    agent.send_signal(signal.SIGKILL)
    log.unlink()
    process = kubeflow.start(tmp_path, *command, log=log)
    try:
        assert cloud.project.trn("local", "up").returncode == 0
        assert process.wait(300) == 0, log.read_text()
    finally:
        kill(process)
    said = log.read_text()
    assert "found kubeflow" in said
    assert said.rstrip().endswith("accepted with loss 0.25"), said
    assert "Traceback" not in said
    assert "ERROR" not in said
    assert cloud.jobs()["kubeflow"] == uid


def _is_agent(process, cloud):
    root = f"{cloud.project.path}{os.sep}"
    return process.info["name"] == "trn-pod-agent" and any(root in each for each in process.info["cmdline"] or ())
