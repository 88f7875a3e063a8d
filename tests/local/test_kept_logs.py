"""What pods of the local cloud wrote is read after they are gone, as a team's researcher; a new agent keeps it, too."""

from collections.abc import Iterator

import pytest
from running_pods import Pods
from team_rooms import Trn, seat
from waiting import until

from trainium_eks.kube.api import Api
from trainium_eks.local.paths import Paths

TEAM = "kept-logs"


@pytest.fixture(scope="module")
def trn(api: Api, paths: Paths) -> Iterator[Trn]:
    with seat(api, paths, TEAM) as call:
        yield call


def _gone(pods: Pods, paths: Paths, name: str, script: str) -> None:
    """A pod that has run and was deleted, with its directory."""
    made = pods.make(script, name=name)
    uid = pods.ended(made)["metadata"]["uid"]
    pods.delete(made)
    pods.gone(made)
    until(lambda: not (paths.pods / uid).exists(), "its directory goes, and its logs are kept")


def test_a_removed_job_is_read_from_its_pods_logs(trn: Trn, api: Api, paths: Paths) -> None:
    pods = Pods(api, TEAM)
    _gone(pods, paths, "bert-trainer-0-0", "echo '[default0]:first'; sleep 1.1; echo '[default0]:second'; exit 1")
    _gone(pods, paths, "bert-trainer-1-0", "echo '[default0]:of node 1'")
    _gone(pods, paths, "bert-trainer-0-0", "echo '[default0]:resumed'")
    assert trn("logs", "bert", "--since", "1h")[:2] == (
        0,
        "[default0]:first\n[default0]:second\n[default0]:resumed\n",
    )
    expected = "node 0 | [default0]:second\nnode 1 | [default0]:of node 1\nnode 0 | [default0]:resumed\n"
    code, out, _ = trn("logs", "bert", "--since", "1h", "--all")
    assert (code, out.partition("\n")[2]) == (0, expected)
    of_one = trn("logs", "bert", "--since", "1h", "--node", "1", "--tail", "1")
    assert of_one[:2] == (0, "[default0]:of node 1\n")
    code, _, err = trn("logs", "bert")
    assert (code, "trn logs bert --since 24h" in err) == (2, True), err


def test_other_teams_do_not_read_it(trn: Trn, paths: Paths) -> None:
    place = paths.kept / "other" / "alien-trainer-0-0" / "uid" / "c"
    place.mkdir(parents=True)
    (place / "0.log").write_text("2026-11-22T05:33:01.000000000Z F theirs\n")
    code, out, err = trn("logs", "alien", "--since", "2020-01-01T00:00:00Z")
    assert code == 2
    assert "theirs" not in out + err
