"""Golden plans: the URNs of each environment and the inputs whose change replaces a resource.

A URN that changes is a resource that Pulumi deletes and makes anew; an input of the replace class does the same.
When that is meant, and the release notes say so: ``make golden``, then commit the difference.
"""

import json
from pathlib import Path
from typing import Any

from trainium_eks.graph.graph import Graph
from trainium_eks.graph.recording.process import record
from trainium_eks.graph.resource_types.replacements import replacing_values

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "golden_plans"
ENVIRONMENTS = ("dev", "prod", "gpu")


def golden(graph: Graph) -> dict[str, Any]:
    """URN to the inputs whose change would replace the resource."""
    return {resource.urn: dict(replacing_values(resource)) for resource in graph.resources}


def text(graph: Graph) -> str:
    """The golden file's content."""
    return json.dumps(golden(graph), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    for environment in ENVIRONMENTS:
        (FOLDER / f"{environment}.json").write_text(text(record(ROOT, environment)))
