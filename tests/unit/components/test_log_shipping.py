import json
import shutil
import subprocess

import pytest

from components import _fluent_bit
from trainium_eks.jobs.watch.cloudwatch_logs import line_of

LUA = shutil.which("luajit") or shutil.which("lua5.1")

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
    ("pod", "container"), [("bert-trainer-0-0", "trainer"), ("etcd.server-0", "main-x"), ("a", "neuron-monitor-0a1b")]
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
