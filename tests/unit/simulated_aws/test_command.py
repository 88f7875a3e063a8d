"""``python -m engine.simulated_aws``."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from engine.client import Clouds
from engine.simulated_aws.server import FAILURE, serving
from waiting import SECONDS

from trainium_eks.plan.backend import SimulationError

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def started(*arguments: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "engine.simulated_aws", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))), **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_stopped(state: Path, how: signal.Signals) -> None:
    with started("--state", str(state)) as process:
        assert process.stdout is not None
        name, _, value = process.stdout.readline().strip().partition("=")
        assert name == "PULUMI_DEBUG_PROVIDERS"
        ports = dict(each.split(":") for each in value.split(","))
        assert list(ports) == ["aws", "eks", "kubernetes"]
        clouds = Clouds(ports)
        assert clouds.provider().made("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"})[0].startswith("vpc-sim-")
        process.send_signal(how)
        assert process.wait(SECONDS) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
        with pytest.raises(grpc.RpcError):
            clouds.provider()
    assert "vpc-sim-" in state.read_text()


def test_a_state_file_in_use_is_told_in_one_line(state: Path) -> None:
    with serving(state), started("--state", str(state)) as process:
        out, error = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (1, "")
    assert "in use" in error
    assert error.count("\n") == 1


def test_a_failing_type_that_there_is_not_is_refused(state: Path) -> None:
    with started("--state", str(state), **{FAILURE: "aws:ec2/vcp:Vcp"}) as process:
        _, error = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "aws:ec2/vcp:Vcp" in error
    with pytest.raises(SimulationError, match="pulumi:providers:aws"), serving(state, failing="pulumi:providers:aws"):
        pass


def test_only_this_machine_can_attach(state: Path) -> None:
    with serving(state) as environment:
        port = int(environment["PULUMI_DEBUG_PROVIDERS"].split(",")[0].split(":")[1])
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS).close()
        with pytest.raises(OSError, match=r"refused|assign|timed out"):
            # Another address of this machine: one that listens on all of them would answer.
            socket.create_connection(("127.0.0.2", port), timeout=5)
