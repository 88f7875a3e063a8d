"""The DAG of ``examples/pipelines/airflow``, run by a real scheduler that is killed, and stopped by a user."""

import json
import re
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen

import pytest
from pipelines.rig import EXAMPLES, Tool, kill, tool
from waiting import until

from trainium_eks.local.control_plane import ports

SECONDS = 600.0
"""For Airflow's four processes to start on a machine that does much else."""


@dataclass
class Airflow:
    """`airflow standalone` in a folder: API server, scheduler with its LocalExecutor, DAG processor, triggerer."""

    tool: Tool
    folder: Path
    port: int
    log: Path
    process: "Popen[bytes] | None" = field(default=None)

    def start(self):
        self.process = self.tool.start(self.folder, "airflow", "standalone", log=self.log)
        until(self._has_read, self.log.read_text, SECONDS)

    def kill(self):
        if self.process is not None:
            kill(self.process)

    def ask(self, method, path, body=None, *, token=""):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)

    def dag(self, method, path="", body=None):
        token = self.ask("GET", "/auth/token")["access_token"]
        return self.ask(method, f"/api/v2/dags/training{path}", body, token=token)

    def begin(self, run, **params):
        self.dag("POST", "/dagRuns", {"dag_run_id": run, "logical_date": None, "conf": params})

    def tries(self, run):
        found = self.dag("GET", f"/dagRuns/{run}/taskInstances")["task_instances"]
        return {each["task_id"]: (each["state"], each["try_number"]) for each in found}

    def result(self, run, task):
        return self.dag("GET", f"/dagRuns/{run}/taskInstances/{task}/xcomEntries/return_value")["value"]

    def _has_read(self):
        try:
            return not self.dag("GET")["is_paused"]
        except OSError:
            return False


@pytest.fixture(scope="module")
def airflow(cloud, tmp_path_factory):
    folder = tmp_path_factory.mktemp("airflow")
    programs, port = tool("airflow", cloud, folder), ports.free_port(set())
    settings = {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__SECRET_KEY": "0" * 64,
        "AIRFLOW__API_AUTH__JWT_SECRET": "0" * 64,
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES / "airflow"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(ports.free_port({port})),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(ports.free_port({port})),
        # Else five minutes pass before a task whose worker was killed is tried again.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
        # The same for the tasks of a killed scheduler, which another takes over when it looks for them.
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
        "TRN_IMAGE": "local/python",
        "TRN_OUTPUTS": str(cloud.outputs),
    }
    made = Airflow(Tool(programs.programs, {**programs.environment, **settings}), folder, port, folder / "log")
    try:
        made.start()
        yield made
    finally:
        made.kill()


def _begun(cloud, before):
    """The job that is there since, with a step."""
    [name] = until(lambda: set(cloud.jobs()) - before, "the run submits its job")
    cloud.await_step(name)
    return name


def test_airflow_run_survives_its_scheduler_and_a_pod(cloud, airflow):
    before = set(cloud.jobs())
    airflow.begin("killed", examples=4000)
    name = _begun(cloud, before)
    assert not [
        line for line in airflow.log.read_text().splitlines() if re.search(r"\[(error|critical)|Traceback", line)
    ]
    airflow.kill()
    uid = cloud.jobs()[name]
    cloud.delete_pod(name)
    airflow.start()
    until(lambda: airflow.dag("GET", "/dagRuns/killed")["state"] in ("success", "failed"), "the run ends", SECONDS)
    tries = airflow.tries("killed")
    assert {task: state for task, (state, _) in tries.items()} == dict.fromkeys(tries, "success")
    assert tries["preprocess"][1] == 1
    # The first tries of an Airflow that starts again may come before its API server.
    last = airflow.folder / f"logs/dag_id=training/run_id=killed/task_id=train/attempt={tries['train'][1]}.log"
    assert f"Found the job {name}" in last.read_text()
    assert cloud.jobs()[name] == uid
    assert set(cloud.jobs()) - before == {name}
    assert cloud.status(name)["retryCount"] == 1
    assert cloud.status(name)["minAvailable"] == 2
    metrics = airflow.result("killed", "train")
    assert (metrics["step"], metrics["steps"], metrics["loss"]) == (400, 400, 0.25)
    assert airflow.result("killed", "evaluate") == "accepted after step 400 with loss 0.25"


def test_stopped_task_cancels_its_job(cloud, airflow):
    before = set(cloud.jobs())
    airflow.begin("stopped", examples=100_000, nodes=1)
    name = _begun(cloud, before)
    assert cloud.status(name)["minAvailable"] == 1
    airflow.dag("PATCH", "/dagRuns/stopped/taskInstances/train", {"new_state": "failed"})
    until(lambda: name not in cloud.jobs(), f"{name} is cancelled")
    assert airflow.tries("stopped")["train"] == ("failed", 1)
