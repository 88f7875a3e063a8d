"""`trn stage` on the local cloud, as a team's researcher: the Job's pod runs here, and really copies."""

import contextlib
import hashlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import psutil
import pytest
from cluster_snapshots import outputs
from moto import mock_aws
from running_pods import cpu_nodes, processes_of, team_objects
from staging_servers import FileServer, file_server, moto_server

from trainium_eks.cli.seat import Seat
from trainium_eks.cli.stage import StageOptions, run
from trainium_eks.local.objects.api import Api
from trainium_eks.local.paths import Paths

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
        yield paths.claims / TEAM / "fsx-claim"
        for each in reversed(objects()):
            api.delete(api.reference(each), propagation="Background")


@pytest.fixture
def stage(volume: Path, paths: Paths, capsys: pytest.CaptureFixture[str]) -> Iterator[Stage]:
    """Runs the command in the team's seat of the local cloud."""
    team = {"name": TEAM, "queues": ["q"], "serviceAccount": "training", "claim": "fsx-claim"}
    paths.outputs.write_text(outputs(namespaces=[team]).model_dump_json(by_alias=True))
    report = {"schemaVersion": 1, "local": True, "notInstalled": [], "simulated": ["aws"], "realVolcano": False}
    paths.report.write_text(json.dumps(report))

    def call(source: str, to: str, **options: Any) -> tuple[int, str, str]:
        code = run(StageOptions(Seat("shared", outputs=paths.outputs), source, to=to, **options))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    yield call
    paths.outputs.unlink()
    paths.report.unlink()


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


def test_files_of_this_machine_are_copied_and_then_found_to_be_there(stage: Stage, volume: Path) -> None:
    decisions = Path(__file__).resolve().parents[2] / "docs" / "decisions"
    code, out, err = stage(str(decisions), "docs")
    assert code == 0, err
    assert out.startswith("/data/docs is complete: ")
    assert content_of(volume / "docs") == content_of(decisions)
    code, out, err = stage(str(decisions), "docs")
    assert (code, "was complete already" in out) == (0, True), err


def test_a_source_that_is_not_there_ends_at_once_with_its_reason(stage: Stage, server: FileServer) -> None:
    began = time.monotonic()
    code, out, err = stage(f"{server.url}/none", "none")
    assert (code, out) == (1, "")
    assert f"{server.url}/none: 404" in err
    assert time.monotonic() - began < 20  # and is not tried twenty times


def test_a_public_bucket_is_copied(stage: Stage, volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with mock_aws(), moto_server() as (url, _):
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="sets")
        for name in ("a", "deep/b"):
            client.put_object(Bucket="sets", Key=f"x/{name}", Body=name.encode(), ACL="public-read")
        code, _, err = stage("s3://sets/x/", "bucket", endpoint=url)
    assert code == 0, err
    assert content_of(volume / "bucket") == {"a": b"a", "deep/b": b"deep/b"}


def test_killed_while_it_copies_it_goes_on_in_another_pod(
    stage: Stage, volume: Path, server: FileServer, api: Api, paths: Paths
) -> None:
    files = {f"{index}.bin": random.Random(index).randbytes(300_000) for index in range(30)}
    server.files |= {f"/{name}": content for name, content in files.items()}
    lines = (f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in files.items())
    server.files["/SHA256SUMS"] = "\n".join(lines).encode()
    server.seconds_a_piece = 0.2
    killed = threading.Event()

    def kill() -> None:
        deadline = time.monotonic() + 60
        while len(list((volume / ".stage-killed/files").glob("*"))) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        (pod,) = [
            each
            for each in api.list("v1", "Pod", namespace=TEAM, labels="trainium-eks/kind=stage")
            if each["status"]["phase"] == "Running"
        ]
        server.seconds_a_piece = 0
        for process in processes_of(paths, pod["metadata"]["uid"]):
            with contextlib.suppress(psutil.Error):  # it ended with the one before
                for child in process.children(recursive=True):
                    if "trainium_workloads.stage" in child.cmdline():
                        child.kill()
                        killed.set()

    killer = threading.Thread(target=kill)
    killer.start()
    code, out, err = stage(f"{server.url}/SHA256SUMS", "killed", is_list=True, workers=4)
    killer.join()
    assert killed.is_set()
    assert code == 0, err
    assert out.startswith("/data/killed is complete: 30 files, 9,000,000 bytes")
    assert content_of(volume / "killed") == files
    assert server.sent_bytes < 9_000_000 + 4 * 300_000 + 10_000, "what was whole was fetched again"
