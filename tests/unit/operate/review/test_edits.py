"""Edits of every key of a stack's config, in both directions, and the verdict that plan, comment and preview have on
them: ``tests/review_edits.yaml``."""

import dataclasses
import json
import runpy
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from review_cases import edited
from tables import first_of_each
from unit.model.config.test_config import FIELDS, another, documented, spelled

from trainium_eks.cli.shared import plan_page, plan_report
from trainium_eks.model.alerts import AlertSettings
from trainium_eks.model.config import schema
from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.operate.review import preview, review
from trainium_eks.operate.review.preview import COMPUTED
from trainium_eks.operate.review.review import Outcome, Refusal, Review
from trainium_eks.plan.differences.changes import Changes
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.recording.program import record_program
from trainium_eks.plan.resource_types.rows import kubernetes

ROOT = Path(__file__).parents[4]
TABLE = yaml.safe_load((ROOT / "tests" / "review_edits.yaml").read_text())
KEYS = {row.path for row in schema.rows(StackConfig)}
THRESHOLDS = {row.path: row.default for row in schema.rows(AlertSettings)}

UNSEEN_IN_PREVIEWS = ("waivers", "budget.hourlyUsd", "budget.nodes")
"""Keys that no resource shows: the account does not have the config that it was built with."""


def keys(edit: Mapping[str, Any]) -> list[str]:
    """Return the keys of the config that an edit is about."""
    return [
        key for name in _listed(edit["key"]) for key in (sorted(_below(name[:-1])) if name.endswith(".*") else [name])
    ]


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def _below(prefix: str) -> Iterator[str]:
    return (key for key in KEYS if key.startswith(prefix))


def _derived() -> Iterator[Mapping[str, Any]]:
    """Yield an edit of each key that the table does not name, with a value that its type allows. It has no verdict of
    its own: the three must have the same."""
    named = {key for edit in TABLE["edits"] for key in keys(edit)}
    for path, spec, name, _ in FIELDS.values():
        key = documented(spelled(path))
        if key in KEYS - named:
            yield {"key": key, "set": {".".join(map(str, path)): another(spec, name)}}


EDITS: list[Mapping[str, Any]] = [*TABLE["edits"], *_derived()]


def _with_thresholds(edit: Mapping[str, Any]) -> dict[str, Any]:
    """Return the edit with every threshold that is a number, one above its default, where it says so."""
    numbers = {key: default.strip("`") for key, default in THRESHOLDS.items()}
    above = {key: int(number) + 1 for key, number in numbers.items() if number.isdigit()}
    return {key: above if value == {"THRESHOLDS": 1} else value for key, value in edit.items()}


@cache
def _config(base: str) -> dict[str, Any]:
    given = TABLE["bases"][base]
    content = yaml.safe_load((ROOT / f"Pulumi.{given['stack']}.yaml").read_text())
    config = {key.removeprefix("trainium-eks:"): value for key, value in content["config"].items()}
    return edited(config, given.get("set", {}))


def recorded(stack: str, config: Mapping[str, Any]) -> Graph | Refusal:
    """Return the program with a config, in this process and without a project's files."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}

    def record() -> Graph:
        return record_program(
            lambda: runpy.run_path(str(ROOT / "__main__.py"), run_name="__main__"),
            project="trainium-eks",
            stack=stack,
            config=texts,
        )

    try:
        # Pulumi's SDK notes the whole stack for each resource: a thread begins a new one.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(record).result()
    except pulumi.RunError as error:
        return Refusal(str(error))


@cache
def _base(base: str) -> Graph:
    graph = recorded(TABLE["bases"][base]["stack"], _config(base))
    assert isinstance(graph, Graph), graph
    return graph


def verdicts(
    before: Graph, after: Graph | Refusal, monkeypatch: pytest.MonkeyPatch, *, previewed: bool
) -> tuple[set[Outcome], str]:
    """Return the verdicts of comment, plan and preview, and all that the comment tells of risks."""
    if isinstance(after, Refusal):
        return {Review("trainium-eks", "dev", "offline", "base", refusal=after).outcome}, ""
    compared = review.of_plans(before, after)
    comment = Review("trainium-eks", "dev", "offline", "base", compared)
    monkeypatch.setattr(review, "of_plans", lambda *_: compared)
    side = compared.after
    plan = plan_report.against(plan_report.Plan(after, side.cost, side.timeline, side.verdicts), "base", before)
    monkeypatch.undo()
    assert plan.review is not None
    assert f" {plan.review.outcome}: " in plan_page.page(plan).strip().splitlines()[-1]
    assert plan.failed is (plan.review.outcome is Outcome.BLOCKED)
    found = {comment.outcome, plan.review.outcome}
    if previewed:
        parsed = preview.parse(document(before, after, compared.changes), after.stack)
        found.add(Review("trainium-eks", "dev", "preview", "it", review.of_preview(parsed, after)).outcome)
    return found, "\n".join(f"{risk.what} {risk.note} {risk.resource.name} {risk.paths}" for risk in compared.risks)


ONE_A_VERDICT = first_of_each(
    EDITS,
    lambda edit: (edit.get("there"), edit.get("back")),
    lambda edit: f"{'+'.join(keys(edit))[:60]}-{EDITS.index(edit)}",
)


@pytest.mark.parametrize("edit", ONE_A_VERDICT)
def test_an_edit_has_its_verdict_in_plan_comment_and_preview(
    edit: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = edit.get("of", "dev")
    previewed = not all(key.startswith(UNSEEN_IN_PREVIEWS) for key in keys(edit))
    before = _base(base)
    if "there" not in edit:
        bare = recorded(before.stack, edited(_config(base), dict.fromkeys(edit["set"], "unset")))
        assert isinstance(bare, Graph), bare
        before = bare
    after = recorded(before.stack, edited(_config(base), _with_thresholds(edit["set"])))
    found, told = verdicts(before, after, monkeypatch, previewed=previewed)
    if "there" not in edit:
        assert len(found) == 1, told
        return
    assert found == {Outcome(edit["there"])}, told
    assert [words for words in _listed(edit.get("tells", [])) if words not in told] == []
    if edit["back"] is not None:
        assert isinstance(after, Graph), after
        found, told = verdicts(after, before, monkeypatch, previewed=previewed)
        assert found == {Outcome(edit["back"])}, told
        assert [words for words in _listed(edit.get("tells back", [])) if words not in told] == []


def test_every_key_of_the_config_is_edited() -> None:
    assert {key for edit in EDITS for key in keys(edit)} == KEYS
    assert sum(2 if edit["back"] else 1 for edit in TABLE["edits"]) >= 120


def test_several_keys_share_an_edit_only_where_none_can_hide_another() -> None:
    for edit in TABLE["edits"]:
        leaves = {key for key in keys(edit) if not any(other.startswith((f"{key}.", f"{key}[")) for other in KEYS)}
        for verdict, tells in ((edit["there"], "tells"), (edit["back"], "tells back")):
            same = verdict == edit["there"] and "tells" in edit
            assert len(leaves) < 2 or verdict in ("SAFE", "BLOCKED", None) or tells in edit or same, edit


# --- what the engine would print ----------------------------------------------------------------------------------


def document(before: Graph, after: Graph, found: Changes) -> dict[str, Any]:
    """Return ``pulumi preview --json --show-sames`` of two recorded programs: computed values of new resources are
    unknown, and so are inputs that hold them."""
    changes = {change.resource.urn: change for change in found.items}
    made = [each.resource for each in changes.values() if each.kind in ("create", "replace")]
    unknown = tuple({text for each in made for text in _computed(each)})
    steps = []
    before, after = _with_manifests(before), _with_manifests(after)
    for urn in sorted({*before.by_urn, *after.by_urn}):
        change, old, new = changes.get(urn), before.by_urn.get(urn), after.by_urn.get(urn)
        step: dict[str, Any] = {"urn": urn, "op": change.kind if change else "same"}
        if not change and (old is None or new is None):
            step["op"] = "create" if old is None else "delete"
        if old:
            step["oldState"] = _state(old, ())
        if new:
            step["newState"] = _state(new, unknown, computes=step["op"] not in ("create", "replace"))
        if change and change.kind in ("update", "replace"):
            kinds = {path.path: "update-replace" if path.replaces else "update" for path in change.paths}
            step["detailedDiff"] = {_quoted(path): {"kind": kind} for path, kind in kinds.items()}
            step["replaceReasons"] = [path for path, kind in kinds.items() if kind != "update"]
        steps.append(step)
    config = {f"{after.project}:{key}": json.dumps(value) for key, value in after.config.items()}
    return {"steps": steps, "config": config, "changeSummary": {}, "diagnostics": []}


def _with_manifests(graph: Graph) -> Graph:
    """Return a program with the objects that the engine finds in a directory: a definition and a workload."""
    found = []
    for each in graph.of_type(kubernetes.UNSEEN_DIRECTORY.token):
        for type_ in ("apiextensions.k8s.io/v1:CustomResourceDefinition", "apps/v1:Deployment"):
            token = f"{kubernetes.PREFIX}{type_}"
            found.append(Resource(f"{each.urn}${token}::found", token, "found", parent=each.urn))
    return dataclasses.replace(graph, resources=(*graph.resources, *found))


def _computed(resource: Resource) -> Iterator[str]:
    known = json.dumps(dict(resource.inputs))
    for key in ("id", "arn", "latestVersion"):
        value = str(resource.outputs.get(key, ""))
        if len(value) >= 8 and value not in known:
            yield value


def _state(resource: Resource, unknown: tuple[str, ...], *, computes: bool = True) -> dict[str, Any]:
    return {
        "type": resource.type,
        "custom": resource.custom,
        "parent": resource.parent,
        "inputs": _with_unknowns(dict(resource.inputs), unknown),
        "outputs": dict(resource.outputs) if computes else {},
        "dependencies": list(resource.dependencies),
        "propertyDependencies": {key: list(urns) for key, urns in resource.property_dependencies.items()},
        "provider": f"{resource.provider}::id" if resource.provider else "",
        "protect": resource.options.protect,
        "retainOnDelete": resource.options.retain_on_delete,
        "ignoreChanges": list(resource.options.ignore_changes),
        "deletedWith": resource.options.deleted_with,
    }


def _with_unknowns(value: Any, unknown: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _with_unknowns(below, unknown) for key, below in value.items()}
    if isinstance(value, list):
        return [_with_unknowns(below, unknown) for below in value]
    return COMPUTED if isinstance(value, str) and any(text in value for text in unknown) else value


def _quoted(path: str) -> str:
    """Return a path as the engine spells it where a key holds dots or slashes itself: labels, tags, quotas."""
    for above in (
        "metadata.labels.",
        "metadata.annotations.",
        "tags.",
        "tagsAll.",
        "labels.",
        "spec.hard.",
        "spec.capability.",
    ):
        if path.startswith(above):
            return f'{above[:-1]}["{path.removeprefix(above)}"]'
    return path
