"""Problems of ``instance_types``: faults of the entries, and facts that EC2 contradicts."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.validation.problems import Problem, join, join_key


def validate(
    entries: Mapping[str, Mapping[str, Any]], catalogue: Catalogue, faults: Sequence[Problem]
) -> list[Problem]:
    """Return the faults that :func:`.instance_entries.with_entries` found, and EFA counts that differ from EC2's for a
    type that the catalogue knows without the entries."""
    counts = _wrong_efa_counts(entries, catalogue)
    found = []
    for fault in faults:
        path = _path(fault.path, entries)
        wrong = counts.pop(path, None)
        found.append(Problem(path, wrong.reason, value=wrong.value, good=wrong.good) if wrong else
                     Problem(path, fault.reason, fault.fix))  # fmt: skip
    return [*found, *counts.values()]


def _wrong_efa_counts(entries: Mapping[str, Mapping[str, Any]], catalogue: Catalogue) -> dict[str, Problem]:
    found = {}
    for name, entry in entries.items():
        given = next((entry[key] for key in ("efaInterfaces", "efa_interfaces") if key in entry), None)
        if name not in catalogue or not isinstance(given, int | float) or given == catalogue[name].efa_interfaces:
            continue
        has = catalogue[name].efa_interfaces
        path = join(join_key("", name), "efa_interfaces")
        reason = f"{name} has {has} EFA interfaces, not {given:g} (EC2 DescribeInstanceTypes)"
        found[path] = Problem(path, reason, rule="R24", value=given, good=has)
    return found


def _path(path: str, entries: Mapping[str, object]) -> str:
    """Return a path such as ``trn3.48xlarge.vcpus`` with the type's name quoted, because the name contains a dot."""
    name = max((each for each in entries if path == each or path.startswith(f"{each}.")), key=len, default="")
    if not name:
        return path
    field = re.sub(r"^\.", "", path[len(name) :])
    return join(join_key("", name), field) if field else join_key("", name)
