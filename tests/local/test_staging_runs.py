"""`trn stage` on the local cloud, as a team's researcher: the Job's pod runs here, and really copies."""

import contextlib
import hashlib
import json
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import psutil
import pytest
from cluster_snapshots import outputs
from moto import mock_aws
from running_pods import await_right, cpu_nodes, failures_of, processes_of, team_objects
from staging_servers import FileServer, file_server, moto_server
from typer.testing import CliRunner
from waiting import until

from trainium_eks.cli.app import app
from trainium_eks.kube.api import Api
from trainium_eks.local.paths import Paths

pytestmark = pytest.mark.slow

TEAM = "staging-runs"
RULES = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]},
]

Stage = Callable[..., tuple[int, str, str]]


def objects() -> list[dict[str, Any]]:
    """A team's namespace with its claim; the team's policies are tested in test_staging."""
    return team_objects(TEAM, RULES)


@pytest.fixture(scope="module")
def volume(api: Api, paths: Paths) -> Iterator[Path]:
    """The team's volume, as this machine has it."""
    with cpu_nodes(api, labels={"trainium-eks/pool": "cpu"}):
        for each in objects():
            api.create(each)
        await_right(api, f"{TEAM}:researchers", TEAM, "create", "jobs.batch")
        yield paths.claims / TEAM / "fsx-claim"
        for each in reversed(objects()):
            api.delete(api.reference(each), propagation="Background")


@pytest.fixture
def stage(volume: Path, paths: Paths) -> Iterator[Stage]:
    """Runs the command in the team's seat of the local cloud."""
    team = {"name": TEAM, "queues": ["q"], "serviceAccount": "training", "claim": "fsx-claim"}
    paths.outputs.write_text(outputs(namespaces=[team]).model_dump_json(by_alias=True))
    report = {"schemaVersion": 1, "local": True, "notInstalled": [], "simulated": ["aws"], "realVolcano": False}
    paths.report.write_text(json.dumps(report))

    def call(source: str, to: str, *options: str) -> tuple[int, str, str]:
        shown = CliRunner().invoke(app, ["stage", source, "--to", to, *options, "--outputs", str(paths.outputs)])
        return shown.exit_code, shown.stdout, shown.stderr

    yield call
    paths.outputs.unlink()
    paths.report.unlink()


@pytest.fixture
def to() -> str:
    """Where on the volume, for one try of a test."""
    return f"set-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as stub:
        yield stub


def content_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith(".stage")
    }


def test_files_of_this_machine_are_copied_and_then_found_to_be_there(stage: Stage, volume: Path, to: str) -> None:
    decisions = Path(__file__).resolve().parents[2] / "docs" / "decisions"
    code, out, err = stage(str(decisions), to)
    assert code == 0, err
    assert out.startswith(f"/data/{to} is complete: ")
    assert content_of(volume / to) == content_of(decisions)
    code, out, err = stage(str(decisions), to)
    assert (code, "was complete already" in out) == (0, True), err


def test_a_source_that_is_not_there_ends_at_once_with_its_reason(
    stage: Stage, server: FileServer, api: Api, to: str
) -> None:
    code, out, err = stage(f"{server.url}/none", to)
    assert (code, out) == (1, "")
    assert f"{server.url}/none: 404" in err
    [job] = [
        each
        for each in api.list("batch/v1", "Job", namespace=TEAM)
        if each["metadata"]["annotations"]["trainium-eks/to"] == to
    ]
    # And not that it was tried twenty times.
    assert failures_of(job) == ["PodFailurePolicy"]


def test_a_public_bucket_is_copied(stage: Stage, volume: Path, to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with mock_aws(), moto_server() as (url, _):
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="sets")
        for name in ("a", "deep/b"):
            client.put_object(Bucket="sets", Key=f"x/{name}", Body=name.encode(), ACL="public-read")
        code, _, err = stage("s3://sets/x/", to, "--endpoint", url)
    assert code == 0, err
    assert content_of(volume / to) == {"a": b"a", "deep/b": b"deep/b"}


def test_killed_while_it_copies_it_goes_on_in_another_pod(
    stage: Stage, volume: Path, server: FileServer, api: Api, paths: Paths, to: str
) -> None:
    files = {f"{index}.bin": random.Random(index).randbytes(300_000) for index in range(30)}
    server.files |= {f"/{name}": content for name, content in files.items()}
    lines = (f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in files.items())
    server.files["/SHA256SUMS"] = "\n".join(lines).encode()
    server.seconds_a_piece = 0.2
    killed = threading.Event()

    def running() -> list[dict[str, Any]]:
        found = api.list("v1", "Pod", namespace=TEAM, labels="trainium-eks/kind=stage")
        return [each for each in found if each["status"]["phase"] == "Running"]

    def kill() -> None:
        until(lambda: len(list((volume / f".stage-{to}/files").glob("*"))) >= 4 and running())
        [pod] = running()
        for process in processes_of(paths, pod["metadata"]["uid"]):
            with contextlib.suppress(psutil.Error):  # it ended with the one before
                for child in process.children(recursive=True):
                    if "trainium_workloads.stage" in child.cmdline():
                        child.kill()
                        killed.set()
        server.seconds_a_piece = 0

    killer = threading.Thread(target=kill)
    killer.start()
    code, out, err = stage(f"{server.url}/SHA256SUMS", to, "--file-list", "--workers", "4")
    killer.join()
    assert killed.is_set()
    assert code == 0, err
    assert out.startswith(f"/data/{to} is complete: 30 files, 9,000,000 bytes")
    assert content_of(volume / to) == files
    assert server.sent_bytes < 9_000_000 + 4 * 300_000 + 10_000, "what was whole was fetched again"
