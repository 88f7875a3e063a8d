"""Golden components: all that each component registers with the least arguments, and what each variant changes of it.

``unit/components/variants.yaml`` has the variants. A changed input, option, edge or output is a changed line in
``golden_components/NAME.json``; when it is intended: ``make golden``, then read and commit the difference.
"""

import base64
import contextlib
import json
import os
import re
import sys
from pathlib import Path

import golden
import yaml
from review_cases import TODAY
from unit.components.parts import LEAST

import components
from trainium_eks.plan.recording.program import record_program

TESTS = Path(__file__).resolve().parent
FOLDER = TESTS / "golden_components"
ELSEWHERE = {
    "ConfigMap": ".data.",
    "PrometheusRule": ".spec.groups[",
    "ValidatingAdmissionPolicy": ".spec.va",
    "Release": ".values.dashboards.",
}
"""Kind to the inputs that other tests hold: programs, rules, expressions and dashboards."""
VARIANTS = yaml.safe_load((TESTS / "unit" / "components" / "variants.yaml").read_text())


def variants(name, record):
    """Title to the recorded graph of each variant; the first has the least arguments that the component takes."""
    given = {"least": {}, **VARIANTS[name]}
    component = getattr(components, name)
    return {title: record(lambda: component("trn", LEAST[name] | each) and None) for title, each in given.items()}  # noqa: B023


def golden_of(graphs):
    """Return what is held of variants: whole of the first, and of the others what differs."""
    least, *others = (held(graph) for graph in graphs.values())
    return dict(zip(graphs, [least, *(difference(least, each) for each in others)], strict=True))


def held(graph):
    """Resource to what is held of it, by path: its inputs, a component's outputs, edges and options."""
    found = {}
    for each in graph.resources:
        elsewhere = ELSEWHERE.get(each.type.rpartition(":")[2], "nowhere")
        leaves = _leaves("", each.inputs if each.custom else each.outputs)
        entry = {f"({key})": value for key, value in golden._entry(graph, each).items() if key != "replaces"}
        entry |= {path: value for path, value in leaves if not path.startswith(elsewhere)}
        found[f"{each.type} {each.name}"] = entry
    return found | ({"warnings": {f"{at}": text for at, text in enumerate(graph.warnings)}} if graph.warnings else {})


def difference(before, after):
    """Return the differences of a variant by resource and path: None for a removed resource or value."""
    found = {}
    for resource in sorted({*before, *after}):
        old, new = before.get(resource, {}), after.get(resource)
        changed = {path for path in {*old, *(new or ())} if new is None or old.get(path) != new.get(path)}
        if changed:
            found[resource] = new and {path: new.get(path) for path in sorted(changed)}
    return found


def expected(name):
    """Return the golden variants of a component by their titles."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def _leaves(path, value):
    if path == ".userData" and " " not in value:
        value = base64.b64decode(value).decode()
    if isinstance(value, str) and value[:1] in "{[":
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(f"{path}.{key}", each)
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for index, each in enumerate(value):
            yield from _leaves(f"{path}[{index}]", each)
    elif isinstance(value, str):
        digest = re.fullmatch("[0-9a-f]{64}", value)
        yield path, "a digest" if digest else value.splitlines() if "\n" in value else value
    else:
        yield path, value


def _text(value, depth=0):
    """Return JSON with a line for each path."""
    if not isinstance(value, dict) or depth > 2 or not value:
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    lines = ",\n".join(f"{' ' * depth} {json.dumps(key)}: {_text(value[key], depth + 1)}" for key in sorted(value))
    return f"{{\n{lines}\n{' ' * depth}}}" + "\n" * (not depth)


def main():
    """Write the golden file of each component."""
    os.environ["SOURCE_DATE_EPOCH"] = TODAY
    for name in VARIANTS:
        text = _text(golden_of(variants(name, record_program)))
        file = FOLDER / f"{name}.json"
        changed = not file.exists() or file.read_text() != text
        file.write_text(text)
        sys.stdout.write(f"{name}: {'written anew' if changed else 'no changes'}\n")


if __name__ == "__main__":
    main()
