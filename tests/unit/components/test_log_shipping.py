import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from unit.components.parts import Record, one, statements

from components import _fluent_bit
from components.log_shipping import LogShipping
from trainium_eks.jobs.watch.cloudwatch_logs import line_of
from trainium_eks.model.catalogue import versions
from trainium_eks.plan.graph import Graph

KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b"
LUA = shutil.which("luajit") or shutil.which("lua5.1")


def args(**more: Any) -> dict[str, Any]:
    return {"region": "us-west-2", "cluster_name": "trn-1", "kms_key_arn": KEY, **more}


def built(record: Record, **more: Any) -> Graph:
    return record(lambda: LogShipping("logs", args(**more)))


def values(record: Record, **more: Any) -> dict[str, Any]:
    return dict(one(built(record, **more), "Release").inputs["values"])


def settings(section: str) -> dict[str, str]:
    """A section of Fluent Bit's classic configuration."""
    found = (line.split(maxsplit=1) for line in section.splitlines() if line.startswith("    "))
    return {name.lower(): value for name, value in found}


def test_the_group_is_named_after_the_cluster_and_encrypted(record: Record) -> None:
    graph = built(record, retention_days=180)
    group = one(graph, "LogGroup").inputs
    assert group["name"] == "/trainium-eks/trn-1/containers"
    assert (group["retentionInDays"], group["kmsKeyId"]) == (180, KEY)
    assert one(graph, "LogShipping").outputs["log_group"] == group["name"]
    release, chart = one(graph, "Release").inputs, versions.CHARTS["fluent-bit"]
    assert (release["chart"], release["version"]) == (chart.chart, chart.version)


def test_it_may_write_to_its_own_group_and_read_nothing(record: Record) -> None:
    graph = built(record)
    [statement] = statements(graph)
    assert statement["Action"] == ["logs:CreateLogStream", "logs:PutLogEvents"]
    assert statement["Resource"] == one(graph, "LogGroup").outputs["arn"] + ":*"
    # Nobody gets into its namespace.
    assert one(graph, "NetworkPolicy").inputs["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}


def test_the_output_goes_to_the_group_that_is_there(record: Record) -> None:
    found = values(record)
    output = settings(found["config"]["outputs"])
    assert output["region"] == "us-west-2"
    assert output["auto_create_group"] == "Off"
    assert found["env"] == [{"name": "LOG_GROUP", "value": "/trainium-eks/trn-1/containers"}]
    assert output["log_group_name"] == "${LOG_GROUP}"
    # One variable with nothing after it: a template takes only dots and commas between two.
    assert re.fullmatch(r"\$[a-z_]+", output["log_stream_template"])
    assert output["log_stream_template"].removeprefix("$") in _fluent_bit.STREAM_SCRIPT


def test_every_part_of_the_pipeline_is_about_the_same_lines(record: Record) -> None:
    config = values(record)["config"]
    tag = settings(config["inputs"])["tag"]
    assert settings(config["filters"])["match"] == settings(config["outputs"])["match"] == tag
    assert f"function {settings(config['filters'])['call']}(" in _fluent_bit.STREAM_SCRIPT
    script = settings(config["filters"])["script"]
    assert values(record)["luaScripts"][Path(script).name] == _fluent_bit.STREAM_SCRIPT
    assert settings(config["inputs"])["path_key"] == "file"


@pytest.mark.parametrize(("system", "left_out"), [(False, True), (True, False)])
def test_its_own_lines_are_left_out_and_the_systems_unless_asked_for(
    record: Record, system: bool, left_out: bool
) -> None:
    excluded = settings(values(record, system=system)["config"]["inputs"])["exclude_path"]
    assert "*_log-shipping_*" in excluded
    assert ("*_kube-system_*" in excluded) is left_out


def test_it_runs_on_every_node_and_asks_kubernetes_nothing(record: Record) -> None:
    found = values(record)
    assert found["tolerations"] == [{"operator": "Exists"}]
    assert found["rbac"] == {"create": False}
    assert found["serviceAccount"] == {"automountServiceAccountToken": False}
    assert found["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = {each["mountPath"]: each for each in found["daemonSetVolumeMounts"]}
    assert mounts["/var/log"]["readOnly"] is True
    # What is read and not yet sent outlives the pod.
    states = [settings(found["config"]["service"])["storage.path"], settings(found["config"]["inputs"])["db"]]
    assert all(each.startswith("/state/") for each in states)
    volumes = {each["name"]: each["hostPath"]["path"] for each in found["daemonSetVolumes"]}
    assert volumes["state"] == "/var/lib/fluent-bit"


def test_a_short_time_in_production_is_acknowledged_by_a_waiver(record: Record) -> None:
    waivers = {"R84": "shipped elsewhere"}
    group = one(built(record, retention_days=7, production=True, waivers=waivers), "LogGroup")
    assert group.inputs["retentionInDays"] == 7


PROGRAM = """
dofile(arg[1])
local code, _, found = name_stream("containers", 1, {{ file = "{file}", _p = "F", stream = "stdout", log = "step 1" }})
local k = found.kubernetes or {{}}
print(code, found.log_stream, k.namespace_name, k.pod_name, k.container_name, found.file, found._p, found.log)
"""


def run(file: str, folder: Path) -> list[str]:
    (folder / "stream.lua").write_text(_fluent_bit.STREAM_SCRIPT)
    (folder / "program.lua").write_text(PROGRAM.format(file=file))
    command = [str(LUA), str(folder / "program.lua"), str(folder / "stream.lua")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n").split("\t")


needs_lua = pytest.mark.skipif(LUA is None, reason="neither luajit nor lua5.1 is on PATH")


@needs_lua
@pytest.mark.parametrize(
    ("pod", "container"),
    [("bert-trainer-0-0", "trainer"), ("etcd.server-0", "main-x"), ("a", "neuron-monitor-0a1b")],
)
def test_a_line_gets_its_stream_from_its_files_name(pod: str, container: str, tmp_path: Path) -> None:
    file = f"/var/log/containers/{pod}_research_{container}-{'0a' * 32}.log"
    stream = f"research/{pod}/{container}"
    assert run(file, tmp_path) == ["2", stream, "research", pod, container, "nil", "nil", "step 1"]


@needs_lua
def test_a_line_of_another_file_is_left_as_it_is(tmp_path: Path) -> None:
    found = run("/var/log/messages", tmp_path)
    assert found[:2] == ["0", "nil"]
    assert found[5] == "/var/log/messages"


def test_what_it_sends_is_what_trn_logs_reads() -> None:
    sent = {
        "time": "2026-11-22T12:00:00.123456789Z",
        "stream": "stdout",
        "log": "step 1",
        "kubernetes": {"namespace_name": "research", "pod_name": "bert-0", "container_name": "trainer"},
        "log_stream": "research/bert-0/trainer",
    }
    line = line_of({"message": json.dumps(sent), "timestamp": 1})
    assert (line.stamp, line.text) == (sent["time"], "step 1")
