"""`trn tunnel`: an HTTPS server with a cluster's name behind a forwarding program in place of Session Manager's."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import boto3  # type: ignore[import-untyped]
import pytest
from cluster_snapshots import outputs
from moto import mock_aws
from waiting import until

from trainium_eks.aws.sessions import Aws, AwsError
from trainium_eks.cli.jobs.submit import tunnel
from trainium_eks.cli.jobs.submit.tunnel import TunnelOptions
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import Failure
from trainium_eks.local.control_plane import pki
from trainium_eks.local.paths import Paths

HOST = "abc123.gr7.us-west-2.eks.amazonaws.com"

# What Session Manager's plugin does: the local port leads to the host behind the instance.
FORWARDER = f"""#!{sys.executable}
import json, os, socket, sys, threading
given = dict(zip(sys.argv[3::2], sys.argv[4::2]))
parameters = json.loads(given["--parameters"])
assert sys.argv[1:3] == ["ssm", "start-session"] and parameters["host"] == ["{HOST}"], sys.argv
assert given["--document-name"] == "AWS-StartPortForwardingSessionToRemoteHost"
open(os.environ["FORWARDED"], "w").write(f"{{os.getpid()}} {{given['--target']}}")
if given["--target"] == "i-refused":
    sys.exit("An error occurred (TargetNotConnected): i-refused is not connected.")
def pump(a, b):
    while data := a.recv(65536):
        b.sendall(data)
    b.shutdown(socket.SHUT_WR)  # close() would send nothing while the other thread reads
with socket.create_server(("127.0.0.1", int(parameters["localPortNumber"][0]))) as listening:
    while True:
        near, _ = listening.accept()
        far = socket.create_connection(("127.0.0.1", int(os.environ["BEHIND"])))
        for ends in ((near, far), (far, near)):
            threading.Thread(target=pump, args=ends, daemon=True).start()
"""

ASKS = """
import os, sys
from pathlib import Path
from trainium_eks.kube.api import Api
sys.exit(0 if Api.connect(Path(os.environ["KUBECONFIG"])).request("GET", "/version")["gitVersion"] == "v1.35.4" else 9)
"""

# Where the tests run in the background of a shell, SIGINT is ignored, and so it would be here.
HEARS_CTRL_C = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("trainium_eks.cli", run_name="__main__")
"""


class _Version(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'{"gitVersion": "v1.35.4"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Outputs of a stack whose API is private, and the programs that lead to it."""
    paths = Paths.of(tmp_path, "local")
    pki.ensure(paths, "10.96.0.0/16")
    certificate, key, _ = pki.serving_certificate(paths, "private", [HOST])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Version)
    # Shaken in the thread of each connection: the first one says nothing, it only looks whether the port is open.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    Thread(target=server.serve_forever, daemon=True).start()
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"aws": FORWARDER, "session-manager-plugin": "#!/bin/sh\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("BEHIND", str(server.server_address[1]))
    monkeypatch.setenv("FORWARDED", str(tmp_path / "forwarded"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    cluster = {"server": f"https://{HOST}", "certificate-authority-data": pki.certificate_authority_data(paths)}
    kubeconfig = {
        "clusters": [{"name": "dev", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": "x"}}],
        "contexts": [{"name": "dev", "context": {"cluster": "dev", "user": "me"}}],
        "current-context": "dev",
    }
    file = tmp_path / "outputs.json"
    file.write_text(outputs(kubeconfig=json.dumps(kubeconfig)).model_dump_json(by_alias=True))
    yield file
    server.shutdown()


def _options(stack: Path, *command: str, target: str = "i-runner", **others: float) -> TunnelOptions:
    return TunnelOptions(ClusterOptions("", outputs=stack), target, command=command, **others)  # type: ignore[arg-type]


def _is_alive(stack: Path) -> bool:
    pid = int((stack.parent / "forwarded").read_text().split()[0])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_command_reaches_the_api_under_its_own_name_and_ends_the_tunnel(stack: Path) -> None:
    assert tunnel.run(_options(stack, sys.executable, "-c", ASKS)) == 0
    assert tunnel.run(_options(stack, sys.executable, "-c", "raise SystemExit(7)")) == 7
    assert not _is_alive(stack)


def test_without_a_command_it_says_how_to_use_it_until_its_time_is_over(
    stack: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tunnel.run(_options(stack, minutes=0.001)) == 0
    said = capsys.readouterr()
    assert said.out.startswith("export KUBECONFIG=")
    assert not Path(said.out.strip().partition("=")[2]).exists()
    assert "through i-runner" in said.err
    assert not _is_alive(stack)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_session_too(stack: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", HEARS_CTRL_C, "tunnel", "--target", "i-runner", "--outputs", str(stack)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline().startswith("export KUBECONFIG=")
            running.send_signal(number)
            assert running.wait(30) == 128 + number
        finally:
            running.kill()
    until(lambda: not _is_alive(stack), "the session has ended")


def test_a_session_that_breaks_off_fails(stack: Path) -> None:
    def cut() -> None:
        file = stack.parent / "forwarded"
        until(lambda: file.is_file() and file.read_text() != "", "it forwards")
        time.sleep(0.5)
        os.kill(int(file.read_text().split()[0]), signal.SIGKILL)

    Thread(target=cut, daemon=True).start()
    with pytest.raises(Failure, match="the session ended"):
        tunnel.run(_options(stack))


def test_a_refused_session_has_the_words_of_aws(stack: Path) -> None:
    with pytest.raises(Failure, match="no session to i-refused opens") as refused:
        tunnel.run(_options(stack, target="i-refused"))
    assert "TargetNotConnected" in refused.value.detail


def test_a_missing_plugin_is_named_with_its_page(stack: Path) -> None:
    (stack.parent / "bin" / "session-manager-plugin").unlink()
    with pytest.raises(Failure, match="session-manager-plugin is not on PATH"):
        tunnel.run(_options(stack))


def test_the_port_is_a_free_one() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", tunnel._free_port()))


@mock_aws
def test_the_instance_is_the_tagged_one_of_the_clusters_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    ec2 = boto3.client("ec2", "us-west-2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    role = "arn:aws:iam::123456789012:role/cluster"
    boto3.client("eks", "us-west-2").create_cluster(
        name="trn-dev", roleArn=role, resourcesVpcConfig={"subnetIds": [subnet]}
    )
    # moto leaves it out; EKS' DescribeCluster has it.
    monkeypatch.setattr("moto.eks.models.Cluster.resourcesVpcConfig", {"vpcId": vpc}, raising=False)
    aws = Aws("us-west-2")
    with pytest.raises(AwsError, match=r"has the tag trainium-eks/tunnel: name an instance .* by --target"):
        aws.tunnel_instance("trn-dev", tunnel.TAG)
    made = ec2.run_instances(ImageId="ami-12c6146b", MinCount=2, MaxCount=2, SubnetId=subnet)["Instances"]
    ec2.create_tags(Resources=[made[1]["InstanceId"]], Tags=[{"Key": tunnel.TAG, "Value": "true"}])
    assert aws.tunnel_instance("trn-dev", tunnel.TAG) == made[1]["InstanceId"]
