import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from unit.components.parts import LEAST, one, recorder, statements

from components import _fluent_bit
from components.log_shipping import LogShipping
from trainium_eks.jobs.watch.cloudwatch_logs import line_of
from trainium_eks.model.catalogue import versions

KEY = "arn:aws:kms:us-west-2:111122223333:key/0a1b"
GROUP = "/trainium-eks/trn-1/containers"
LUA = shutil.which("luajit") or shutil.which("lua5.1")
built = recorder(LogShipping, "logs", {**LEAST["LogShipping"], "kms_key_arn": KEY})


def values(graph):
    return one(graph, "Release").inputs["values"]


def settings(section):
    """Read a section of Fluent Bit's classic configuration."""
    found = (line.split(maxsplit=1) for line in section.splitlines() if line.startswith("    "))
    return {name.lower(): value for name, value in found}


def test_log_group_is_named_encrypted_and_the_only_one_writable(record):
    graph = built(record, retention_days=180)
    group = one(graph, "LogGroup")
    assert group.inputs["name"] == one(graph, "LogShipping").outputs["log_group"] == GROUP
    assert (group.inputs["retentionInDays"], group.inputs["kmsKeyId"]) == (180, KEY)
    release, chart = one(graph, "Release").inputs, versions.CHARTS["fluent-bit"]
    assert (release["chart"], release["version"]) == (chart.chart, chart.version)
    [statement] = statements(graph)
    assert statement["Action"] == ["logs:CreateLogStream", "logs:PutLogEvents"]
    assert statement["Resource"] == group.outputs["arn"] + ":*"
    # No traffic enters its namespace.
    assert one(graph, "NetworkPolicy").inputs["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    # A short time in production is acknowledged by a waiver.
    short = built(record, retention_days=7, production=True, waivers={"R84": "shipped elsewhere"})
    assert one(short, "LogGroup").inputs["retentionInDays"] == 7


def test_pipeline_parts_agree_and_write_to_the_existing_group(plain):
    found = values(plain)
    inputs, filters, output = (settings(found["config"][part]) for part in ("inputs", "filters", "outputs"))
    assert (output["region"], output["auto_create_group"]) == ("us-west-2", "Off")
    assert found["env"] == [{"name": "LOG_GROUP", "value": GROUP}]
    assert output["log_group_name"] == "${LOG_GROUP}"
    # One variable with nothing after it: a template takes only dots and commas between two.
    assert re.fullmatch(r"\$[a-z_]+", output["log_stream_template"])
    assert output["log_stream_template"].removeprefix("$") in _fluent_bit.STREAM_SCRIPT
    assert filters["match"] == output["match"] == inputs["tag"]
    assert f"function {filters['call']}(" in _fluent_bit.STREAM_SCRIPT
    assert found["luaScripts"][Path(filters["script"]).name] == _fluent_bit.STREAM_SCRIPT
    assert inputs["path_key"] == "file"


def test_shipper_runs_on_every_node_without_kubernetes_access(record, plain):
    for system, graph in ((False, plain), (True, built(record, system=True))):
        excluded = settings(values(graph)["config"]["inputs"])["exclude_path"]
        assert "*_log-shipping_*" in excluded
        assert ("*_kube-system_*" in excluded) is not system
    found = values(plain)
    assert (found["tolerations"], found["rbac"]) == ([{"operator": "Exists"}], {"create": False})
    assert found["serviceAccount"] == {"automountServiceAccountToken": False}
    assert found["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = {each["mountPath"]: each for each in found["daemonSetVolumeMounts"]}
    assert mounts["/var/log"]["readOnly"] is True
    # What is read and not yet sent outlives the pod.
    states = [settings(found["config"]["service"])["storage.path"], settings(found["config"]["inputs"])["db"]]
    assert all(each.startswith("/state/") for each in states)
    volumes = {each["name"]: each["hostPath"]["path"] for each in found["daemonSetVolumes"]}
    assert volumes["state"] == "/var/lib/fluent-bit"


PROGRAM = """
dofile(arg[1])
local code, _, found = name_stream("containers", 1, {{ file = "{file}", _p = "F", stream = "stdout", log = "step 1" }})
local k = found.kubernetes or {{}}
print(code, found.log_stream, k.namespace_name, k.pod_name, k.container_name, found.file, found._p, found.log)
"""


def run(file, folder):
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
def test_log_stream_follows_from_the_file_name(pod, container, tmp_path):
    file = f"/var/log/containers/{pod}_research_{container}-{'0a' * 32}.log"
    stream = f"research/{pod}/{container}"
    assert run(file, tmp_path) == ["2", stream, "research", pod, container, "nil", "nil", "step 1"]
    # One of another file is left as it is.
    other = run("/var/log/messages", tmp_path)
    assert (other[:2], other[5]) == (["0", "nil"], "/var/log/messages")


def test_trn_logs_reads_the_shipped_format():
    sent = {
        "time": "2026-11-22T12:00:00.123456789Z",
        "stream": "stdout",
        "log": "step 1",
        "kubernetes": {"namespace_name": "research", "pod_name": "bert-0", "container_name": "trainer"},
        "log_stream": "research/bert-0/trainer",
    }
    line = line_of({"message": json.dumps(sent), "timestamp": 1})
    assert (line.stamp, line.text) == (sent["time"], "step 1")
