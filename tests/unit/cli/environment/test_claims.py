"""Claims that an update takes away, and the pods that hold them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cluster_snapshots import outputs
from stub_api import serving

from trainium_eks.cli.environment import claims, deploy
from trainium_eks.cli.environment.claims import Claim, Holder, holders, leaving
from trainium_eks.client.failure import CommandError
from trainium_eks.model.catalogue import lustre
from trainium_eks.plan.graph import Graph

TEAM = Claim("training", lustre.CLAIM)
JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "bert", "controller": True}


def step(operation: str, type_: str, name: str, namespace: str = "", **state: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    old = {"type": type_, "inputs": {"metadata": metadata}, **state}
    return {"op": operation, "urn": f"urn:{type_}::{namespace}/{name}", "oldState": old}


def pod(name: str, *, node: str = "n1", phase: str = "Running", claim: str = lustre.CLAIM, **metadata: Any) -> Any:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "training", **metadata},
        "spec": {"volumes": volumes, **({"nodeName": node} if node else {})},
        "status": {"phase": phase},
    }


def test_claims_that_are_replaced_or_deleted_are_told_once() -> None:
    own = step("replace", claims.CLAIM, lustre.CLAIM, "lustre-setup")
    steps = [
        step("delete-replaced", claims.CLAIM, lustre.CLAIM, "training"),
        step("replace", claims.CLAIM, lustre.CLAIM, "training"),
        step("delete", claims.CLAIM, lustre.CLAIM, "vision"),
        step("same", claims.CLAIM, lustre.CLAIM, "speech"),
        step("delete", "aws:s3/bucket:Bucket", "b"),
        own,  # the claim of the stack's own job is not a team's
        step("replace", "kubernetes:batch/v1:Job", "directories", propertyDependencies={"spec": [own["urn"]]}),
    ]
    assert leaving({"steps": steps}) == (TEAM, Claim("vision", lustre.CLAIM))


def test_a_pod_holds_its_claim_from_its_node_on_and_finished_too() -> None:
    pods = [
        pod("a", ownerReferences=[JOB]),
        pod("b", phase="Succeeded", ownerReferences=[JOB]),
        pod("c", phase="Failed"),
        pod("waiting", node="", phase="Pending"),
        pod("other", claim="scratch"),
        {"metadata": {"name": "plain"}, "spec": {"nodeName": "n1"}},
    ]
    assert [(each.pod, each.phase, each.owner) for each in holders(TEAM, pods)] == [
        ("a", "Running", "job.batch.volcano.sh/bert"),
        ("b", "Succeeded", "job.batch.volcano.sh/bert"),
        ("c", "Failed", "pod/c"),
    ]


def test_waiting_ends_with_the_last_pod_and_speaks_when_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "PAUSE_SECONDS", 0)
    one, two = (Holder(TEAM, name, "Running", f"pod/{name}") for name in "ab")
    answers = iter([(one, two), (one, two), (one,), ()])
    said: list[str] = []
    claims.wait([TEAM], lambda _: next(answers), said.append)
    assert [line.count("(Running)") for line in said] == [2, 1]


# --- `trn deploy up`, with a pulumi that answers as the real one does ------------------------------------------------

Deploy = Callable[..., list[list[str]]]


@pytest.fixture
def hand_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deploy:
    """Runs `trn deploy up`; the commands that it hands over to."""
    handed: list[list[str]] = []
    monkeypatch.setattr(deploy.os, "execvp", lambda _, command: handed.append(command))
    monkeypatch.setattr(claims, "PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, steps: Sequence[Any], held: bool = True, shown: str | None = None) -> list[list[str]]:
        exported = {"deployment": {"resources": [{"urn": "urn:c", "type": claims.CLAIM, "id": "c"}] if held else []}}
        answers = {"stack export": exported, "preview --json": {"steps": list(steps)}, "stack output": shown}
        for name, answer in answers.items():
            text = answer if isinstance(answer, str) else json.dumps(answer)
            (tmp_path / name.replace(" ", "-")).write_text("" if answer is None else text)
        script = f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec cat "{tmp_path}/$1-$2"\n'
        (tmp_path / "pulumi").write_text(script)
        (tmp_path / "pulumi").chmod(0o755)
        deploy.run("up", Graph("p", "dev", (), {}), tmp_path, list(arguments))
        return handed

    return call


REPLACED = [step("replace", claims.CLAIM, lustre.CLAIM, "training")]


def exported(kubeconfig: Any) -> str:
    return json.dumps({**outputs().model_dump(by_alias=True), "kubeconfig": json.dumps(kubeconfig)})


def test_up_is_not_started_while_a_finished_pod_holds_a_claim_that_goes(
    hand_over: Deploy, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [pod(f"bert-{index}", phase="Succeeded", ownerReferences=[JOB]) for index in range(7)]
    with serving({"Pod": pods}) as api, pytest.raises(CommandError) as stopped:
        hand_over(steps=REPLACED, shown=exported(api.kubeconfig))
    assert stopped.value.code == 1
    ended = "    kubectl -n training delete job.batch.volcano.sh/bert\n"
    for words in ("training/fsx-claim: bert-0 (Succeeded), ", "and 2 more", ended, "--wait-for-pods"):
        assert words in stopped.value.title
    assert "  training/fsx-claim\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("pods", "given", "kept"),
    [
        ([pod("waiting", node="")], ["--yes", "--target", "x"], ["--yes", "--target", "x"]),
        ([], ["--wait-for-pods"], []),
    ],
)
def test_up_is_started_when_no_pod_holds_them(
    hand_over: Deploy, tmp_path: Path, pods: list[Any], given: list[str], kept: list[str]
) -> None:
    with serving({"Pod": pods}) as api:
        handed = hand_over(*given, steps=REPLACED, shown=exported(api.kubeconfig))
    assert handed == [["pulumi", "up", "--stack", "dev", *kept, "--parallel", "32"]]
    target = "" if not kept else " --target x"
    assert f"preview --json --stack dev{target}\n" in (tmp_path / "calls").read_text()


def test_claims_are_named_where_nothing_is_held_up(hand_over: Deploy, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(hand_over(steps=REPLACED, shown="no outputs")) == 1
    said = capsys.readouterr()
    assert ("training/fsx-claim" in said.out, "Cannot ask the cluster" in said.err) == (True, True)
    # A namespace goes with its claims and pods.
    gone = [step("delete", claims.CLAIM, lustre.CLAIM, "training"), step("delete", claims.NAMESPACE, "training")]
    with serving({"Pod": [pod("bert-0")]}) as api:
        assert len(hand_over(steps=gone, shown=exported(api.kubeconfig))) == 2
    assert "(with its namespace and pods)" in capsys.readouterr().out


def test_a_stack_without_claims_is_not_previewed_twice(hand_over: Deploy, tmp_path: Path) -> None:
    hand_over(steps=REPLACED, held=False)
    assert (tmp_path / "calls").read_text() == "stack export --stack dev\n"


def test_a_pulumi_that_fails_is_told_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pulumi").write_text("#!/bin/sh\necho 'error: no stack named dev' >&2\nexit 1\n")
    (tmp_path / "pulumi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(CommandError, match="pulumi stack export --stack dev: error: no stack named dev"):
        claims.ahead(tmp_path, "dev", [])
