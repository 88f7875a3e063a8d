"""Writes the dashboards' JSON.

python -m trainium_eks.observe.dashboards.source             writes
python -m trainium_eks.observe.dashboards.source --check     fails when a file is not current
"""

import json
import sys
from collections.abc import Mapping

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from trainium_eks.observe import dashboards as shipped
from trainium_eks.observe.dashboards.source import fleet, job, nodes, queues, storage

_MADE = {
    "fleet.json": fleet.dashboard,
    "job.json": job.dashboard,
    "queues.json": queues.dashboard,
    "storage.json": storage.dashboard,
    "nodes.json": nodes.dashboard,
}


def made() -> Mapping[str, str]:
    """Return each file's name with its JSON text."""
    return {name: _text(function().build()) for name, function in _MADE.items()}


def _text(dashboard: object) -> str:
    return json.dumps(dashboard, cls=JSONEncoder, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the files, or compare them; return 0 when all are current, or were written."""
    stale = [name for name, text in made().items() if shipped.dashboards().get(name) != text]
    stale += sorted(set(shipped.dashboards()) - set(_MADE))
    if "--check" in sys.argv[1:]:
        if stale:
            sys.stderr.write(f"not current: {', '.join(stale)}; `make dashboards` writes them\n")
        return 1 if stale else 0
    for name, text in made().items():
        (shipped.FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
