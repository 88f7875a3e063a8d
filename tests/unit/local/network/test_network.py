"""Addresses of pods, links of pods that have gone, and where requests to the proxy go."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from trainium_eks.local.network import network
from trainium_eks.local.network.gateway import parse_request
from trainium_eks.local.network.network import GATEWAY, free_address

ROOT = Path(__file__).parents[4]


def test_addresses_are_assigned_in_turn_and_never_twice():
    first = free_address([])
    assert (GATEWAY, first) == ("100.127.0.1", "100.127.0.2")
    assert free_address([], first) == "100.127.0.3", "one that has just gone is not given at once"
    assert free_address(["100.127.0.3"], first) == "100.127.0.4"
    assert free_address(["100.127.0.2"], "100.127.255.254") == "100.127.0.3", "after the last comes the first"


@pytest.fixture
def holder():
    command = [sys.executable, "-m", "trainium_eks.local.network.network"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout.readline() != "ready\n":
                pytest.skip("this machine gives users no network namespaces, or has no `ip` (package iproute2)")
            yield process.pid
        finally:
            process.terminate()


@pytest.fixture
def pods(holder):
    within = ["nsenter", f"--target={holder}", "--user", "--preserve-credentials", "unshare", "--net", "sleep", "600"]
    if missing := [program for program in ("nsenter", "unshare") if shutil.which(program) is None]:
        pytest.skip(f"there is no program {missing[0]} (package util-linux)")
    processes = [subprocess.Popen(within) for _ in range(2)]
    until(lambda: all(Path(f"/proc/{each.pid}/comm").read_text() == "sleep\n" for each in processes))
    yield [each.pid for each in processes]
    for each in processes:
        each.kill()
        each.wait()


def test_pod_gets_its_address_from_a_pod_that_still_holds_it(holder, pods):
    for pod in pods:
        network.plug(pod, holder, "100.127.0.9")
    shown = [
        subprocess.run(
            ["nsenter", f"--target={pod}", "-U", "-n", "--preserve-credentials", "ip", "-br", "address"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for pod in pods
    ]
    assert "100.127.0.9/16" in shown[1]
    assert "100.127.0.9/16" not in shown[0]


def test_proxy_request_is_parsed_and_a_malformed_one_is_refused():
    for line, place, first in (
        ("CONNECT pypi.org:443 HTTP/1.1", ("pypi.org", 443), ""),
        ("CONNECT [::1]:443 HTTP/1.1", ("::1", 443), ""),
        ("GET http://h/a?b=c HTTP/1.1", ("h", 80), "GET /a?b=c HTTP/1.1"),
        ("GET http://h:81 HTTP/1.1", ("h", 81), "GET / HTTP/1.1"),
    ):
        head = f"{line}\r\nHost: h\r\nProxy-Connection: keep-alive\r\nConnection: keep-alive\r\n\r\n".encode()
        sent = f"{first}\r\nConnection: close\r\nHost: h\r\n\r\n" if first else ""
        assert parse_request(head) == (*place, sent.encode())
    for line in ("GET / HTTP/1.1", "GET https://h/ HTTP/1.1", "nonsense", "CONNECT h HTTP/1.1"):
        with pytest.raises(ValueError, match=r".+"):
            parse_request(f"{line}\r\n\r\n".encode())
