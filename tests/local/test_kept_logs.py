"""What pods of the local cloud wrote is read after they are gone, as a team's researcher; a new agent keeps it, too."""

import json
from collections.abc import Callable, Iterator

import pytest
from cluster_snapshots import outputs
from running_pods import Pods, await_right, cpu_nodes, team_objects
from typer.testing import CliRunner
from waiting import until

from trainium_eks.cli.app import app
from trainium_eks.kube.api import Api
from trainium_eks.local.paths import Paths
from trainium_eks.model.policies import researchers

TEAM = "kept-logs"
RULES = [
    {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    for group, resources, verbs in researchers.RESEARCHER_RULES
]

Trn = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def pods(api: Api) -> Iterator[Pods]:
    made = team_objects(TEAM, RULES)
    with cpu_nodes(api):
        for each in made:
            api.create(each)
        await_right(api, f"{TEAM}:researchers", TEAM, "get", "pods")
        yield Pods(api, TEAM)
        for each in reversed(made):
            api.delete(api.reference(each), propagation="Background")


@pytest.fixture(scope="module")
def trn(pods: Pods, paths: Paths) -> Iterator[Trn]:
    """Runs a command in the team's seat."""
    team = {"name": TEAM, "queues": ["q"], "serviceAccount": "training", "claim": "fsx-claim"}
    paths.outputs.write_text(outputs(namespaces=[team]).model_dump_json(by_alias=True))
    report = {"schemaVersion": 1, "local": True, "notInstalled": [], "simulated": ["aws"], "realVolcano": False}
    paths.report.write_text(json.dumps(report))

    def call(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*words, "--outputs", str(paths.outputs)], catch_exceptions=False)
        return done.exit_code, done.output

    yield call
    paths.outputs.unlink()
    paths.report.unlink()


def _gone(pods: Pods, paths: Paths, name: str, script: str) -> None:
    """A pod that has run and was deleted, with its directory."""
    made = pods.make(script, name=name)
    uid = pods.ended(made)["metadata"]["uid"]
    pods.delete(made)
    pods.gone(made)
    until(lambda: not (paths.pods / uid).exists(), "its directory goes, and its logs are kept")


def test_a_removed_job_is_read_from_its_pods_logs(trn: Trn, pods: Pods, paths: Paths) -> None:
    _gone(pods, paths, "bert-trainer-0-0", "echo '[default0]:first'; sleep 1.1; echo '[default0]:second'; exit 1")
    _gone(pods, paths, "bert-trainer-1-0", "echo '[default0]:of node 1'")
    _gone(pods, paths, "bert-trainer-0-0", "echo '[default0]:resumed'")
    assert trn("logs", "bert", "--since", "1h") == (0, "[default0]:first\n[default0]:second\n[default0]:resumed\n")
    expected = "node 0 | [default0]:second\nnode 1 | [default0]:of node 1\nnode 0 | [default0]:resumed\n"
    code, out = trn("logs", "bert", "--since", "1h", "--all")
    assert (code, out.partition("\n")[2]) == (0, expected)
    assert trn("logs", "bert", "--since", "1h", "--node", "1", "--tail", "1") == (0, "[default0]:of node 1\n")
    code, out = trn("logs", "bert")
    assert code == 2
    assert "trn logs bert --since 24h" in out


def test_other_teams_do_not_read_it(trn: Trn, paths: Paths) -> None:
    place = paths.kept / "other" / "alien-trainer-0-0" / "uid" / "c"
    place.mkdir(parents=True)
    (place / "0.log").write_text("2026-11-22T05:33:01.000000000Z F theirs\n")
    code, out = trn("logs", "alien", "--since", "2020-01-01T00:00:00Z")
    assert code == 2
    assert "theirs" not in out
