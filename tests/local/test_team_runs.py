"""A team's researcher on the local cloud, whose pods run here: `trn stage` really copies, and what pods wrote is read
after they are gone."""

import contextlib
import random
import threading
import uuid

import psutil
import pytest
from local_project import ROOT
from running_pods import Pods, failures_of, processes_of
from staging_servers import content_of, file_server
from team_rooms import seat
from waiting import until

TEAM = "team-runs"


@pytest.fixture(scope="module")
def trn(api, paths):
    """Runs a command in the team's seat; the team's policies are tested in test_staging."""
    with seat(api, paths, TEAM) as call:
        yield call


@pytest.fixture
def volume(paths):
    return paths.claims / TEAM / "fsx-claim"


@pytest.fixture
def to():
    """Where on the volume, for one try of a test."""
    return f"set-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def server():
    with file_server() as stub:
        yield stub


@pytest.mark.slow
def test_local_files_are_copied_once(trn, volume, to):
    decisions = ROOT / "docs" / "decisions"
    code, out, err = trn("stage", str(decisions), "--to", to)
    assert code == 0, err
    assert out.startswith(f"/data/{to} is complete: ")
    assert content_of(volume / to) == content_of(decisions)
    code, out, err = trn("stage", str(decisions), "--to", to)
    assert (code, "was complete already" in out) == (0, True), err


@pytest.mark.slow
def test_missing_source_ends_staging_at_once_with_the_reason(trn, server, api, to):
    code, out, err = trn("stage", f"{server.url}/none", "--to", to)
    assert (code, out) == (1, "")
    assert f"{server.url}/none: 404" in err
    [job] = [
        each
        for each in api.list("batch/v1", "Job", namespace=TEAM)
        if each["metadata"]["annotations"]["trainium-eks/to"] == to
    ]
    # And not that it was tried twenty times.
    assert failures_of(job) == ["PodFailurePolicy"]


@pytest.mark.slow
def test_killed_copy_resumes_in_another_pod(trn, volume, server, api, paths, to):
    server.files["/set.bin"] = content = random.Random(1).randbytes(9_000_000)
    server.seconds_a_piece = 0.05
    killed = threading.Event()

    def running():
        found = api.list("v1", "Pod", namespace=TEAM, labels="trainium-eks/kind=stage")
        return [each for each in found if each["status"]["phase"] == "Running"]

    def kill():
        until(lambda: server.sent_bytes > 3_000_000 and running())  # the copier writes 1 MiB at a time
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
    code, out, err = trn("stage", f"{server.url}/set.bin", "--to", to)
    killer.join()
    assert killed.is_set()
    assert code == 0, err
    assert out.startswith(f"/data/{to} is complete: 1 files, 9,000,000 bytes")
    assert content_of(volume / to) == {"set.bin": content}
    assert server.sent_bytes < 9_000_000 + 2_000_000, "what was there is fetched again"


def _make_and_delete_pod(pods, paths, name, script):
    """A pod that has run and was deleted, with its directory."""
    made = pods.make(script, name=name)
    uid = pods.ended(made)["metadata"]["uid"]
    pods.delete(made)
    pods.await_deleted(made)
    until(lambda: not (paths.pods / uid).exists(), "its directory goes, and its logs are kept")


def test_log_of_a_removed_job_is_read_from_its_pods(trn, api, paths):
    pods = Pods(api, TEAM)
    _make_and_delete_pod(
        pods, paths, "bert-trainer-0-0", "echo '[default0]:first'; sleep 1.1; echo '[default0]:second'; exit 1"
    )
    _make_and_delete_pod(pods, paths, "bert-trainer-1-0", "echo '[default0]:of node 1'")
    _make_and_delete_pod(pods, paths, "bert-trainer-0-0", "echo '[default0]:resumed'")
    assert trn("logs", "bert", "--since", "1h")[:2] == (0, "[default0]:first\n[default0]:second\n[default0]:resumed\n")
    expected = "node 0 | [default0]:second\nnode 1 | [default0]:of node 1\nnode 0 | [default0]:resumed\n"
    code, out, _ = trn("logs", "bert", "--since", "1h", "--all")
    assert (code, out.partition("\n")[2]) == (0, expected)
    of_one = trn("logs", "bert", "--since", "1h", "--node", "1", "--tail", "1")
    assert of_one[:2] == (0, "[default0]:of node 1\n")
    code, _, err = trn("logs", "bert")
    assert (code, "trn logs bert --since 24h" in err) == (2, True), err


def test_logs_of_another_team_are_not_readable(trn, paths):
    place = paths.kept / "other" / "alien-trainer-0-0" / "uid" / "c"
    place.mkdir(parents=True)
    (place / "0.log").write_text("2026-11-22T05:33:01.000000000Z F theirs\n")
    code, out, err = trn("logs", "alien", "--since", "2020-01-01T00:00:00Z")
    assert code == 2
    assert "theirs" not in out + err
