"""Golden plans: what of each environment would be noticed on a running stack.

For each resource: its URN, the inputs whose change replaces it, whose outputs its inputs are made from, what else it
waits for, its parent and provider, and the options that the engine acts on. A URN that changes is a resource that
Pulumi deletes and makes anew, and so does an input of the replace class; without an edge or an option a stack works on
a lucky day. When a change is intended, and is in the release notes: ``make golden`` shows it and accepts it; then
commit the difference.
"""

import argparse
import hashlib
import json
import sys
from functools import cache
from pathlib import Path

from trainium_eks.plan.graph import STACK_TYPE
from trainium_eks.plan.recording.process import record
from trainium_eks.plan.resource_types.paths import value_at
from trainium_eks.plan.resource_types.replacements import replacing_paths

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "golden_plans"
ENVIRONMENTS = ("dev", "prod", "gpu")

LONGEST_VALUE = 2000
"""Characters of a value that is held as it is."""


@cache
def recorded(stack, *, dry_run=False):
    """Return the program of an environment, as an update or a first preview registers it; once in a process."""
    return record(ROOT, stack, dry_run=dry_run)


def golden(graph):
    """URN to what is held of the resource."""
    return {resource.urn: _entry(graph, resource) for resource in graph.resources}


def text(graph):
    """The golden file's content: a line for each thing that is held."""
    blocks = []
    for urn, entry in sorted(golden(graph).items()):
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in entry.items())
        blocks.append(f" {json.dumps(urn)}: {{\n{lines}\n }}" if lines else f" {json.dumps(urn)}: {{}}")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def changes(before, after):
    """One line for each thing that differs; of a list only what was added and what went."""
    for urn in sorted({*before, *after}):
        if urn not in before or urn not in after:
            yield f"{'+' if urn in after else '-'} {urn}"
            continue
        old, new = before[urn], after[urn]
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                where = urn.split("::", 2)[2].rpartition("$")[2]
                yield f"{where}  {key}: {_shown(old.get(key), new.get(key))}"


def _shown(old, new):
    if isinstance(old or [], list) and isinstance(new or [], list):
        gone = [f"-{json.dumps(each)}" for each in old or () if each not in (new or ())]
        return ", ".join(gone + [f"+{json.dumps(each)}" for each in new or () if each not in (old or ())])
    return f"{json.dumps(old)} -> {json.dumps(new)}"


def _replacing(resource):
    """Return path to value for the set paths that replace the resource when they change."""
    values = {path: value_at(resource.inputs, path) for path in sorted(set(replacing_paths(resource)))}
    return {path: _short(value) for path, value in values.items() if value is not None}


def _entry(graph, resource):
    """Its parts by name. Those of options are spelled as Pulumi does."""
    parent, options = graph.by_urn.get(resource.parent), resource.options
    made_from = {name: urns for name, urns in resource.property_dependencies.items() if urns}
    inputs_wait_for = {urn for urns in made_from.values() for urn in urns}
    held = {
        "replaces": _replacing(resource) if resource.custom else {},
        "made from": {name: sorted(_called(graph, urn) for urn in urns) for name, urns in made_from.items()},
        "waits for": sorted(_called(graph, urn) for urn in resource.dependencies if urn not in inputs_wait_for),
        "parent": _called(graph, parent.urn) if parent and parent.type != STACK_TYPE else "",
        "provider": _called(graph, resource.provider) if resource.provider else "",
        "protect": options.protect,
        "retainOnDelete": options.retain_on_delete,
        "deletedWith": _called(graph, options.deleted_with) if options.deleted_with else "",
        "deleteBeforeReplace": options.delete_before_replace,
        "ignoreChanges": list(options.ignore_changes),
        "replaceOnChanges": list(options.replace_on_changes),
        # Those by type alone are the SDK's: another version of it has others.
        "aliases": [alias for alias in options.aliases if not alias.startswith("type=")],
        "customTimeouts": dict(options.custom_timeouts),
    }
    return {key: value for key, value in held.items() if value}


def _short(value):
    """A value, or what tells it from another one where it is long, as files are in a ConfigMap."""
    written = json.dumps(value, sort_keys=True)
    if len(written) <= LONGEST_VALUE:
        return value
    return f"{len(written)} characters, SHA-256 {hashlib.sha256(written.encode()).hexdigest()[:12]}…"


def _called(graph, urn):
    """``NodeGroup trn-dev-cluster-trn1-nodes``."""
    resource = graph.by_urn.get(urn.split("::id=", 1)[0])
    return f"{resource.type.rpartition(':')[2]} {resource.name}" if resource else urn


def main():
    """Shows what changes, and writes it; with ``--check`` the exit code is 1 instead when something does."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    only_look = parser.parse_args().check
    changed = False
    for environment in ENVIRONMENTS:
        file = FOLDER / f"{environment}.json"
        after = text(record(ROOT, environment))
        lines = list(changes(json.loads(file.read_text()) if file.exists() else {}, json.loads(after)))
        changed |= bool(lines)
        sys.stdout.write(
            "\n".join([f"{environment}: {len(lines) or 'no'} changes", *(f"  {line}" for line in lines), ""])
        )
        if not only_look:
            file.write_text(after)
    return int(only_look and changed)


if __name__ == "__main__":
    sys.exit(main())
