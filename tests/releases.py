"""The programs of the environments as released versions made them, and what a later version would take from them.

``python tests/releases.py 0.2.0`` keeps those of the version that is about to be tagged; a version that is tagged is
never written again. ``tests/unit/environments/test_releases.py`` holds every later version against them.
"""

import argparse
import gzip
import json
import sys
from dataclasses import replace

import yaml
from golden import ENVIRONMENTS, ROOT

from trainium_eks.plan.differences import diff
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.process import record

FOLDER = ROOT / "tests" / "released_plans"
REVIEWED = FOLDER / "reviewed.yaml"


def versions():
    return tuple(sorted(path.name for path in FOLDER.iterdir() if path.is_dir()))


def load(version, environment):
    return Graph.from_json(json.loads(gzip.decompress(_file(version, environment).read_bytes())))


def now(before):
    """The program that this version makes of a release's own config: what its user gets who only takes the new one."""

    def adjust(settings):
        own = {f"{before.project}:{key}": _stored(value) for key, value in before.config.items()}
        return replace(settings, config=own)

    return record(ROOT, before.stack, adjust=adjust)


def losses(before, after):
    """``replace <type> <name>`` of everything that holds data or running work and goes, to why."""
    found = {}
    for change in diff.compare(before, after).items:
        if change.kind in ("replace", "delete") and change.stateful:
            why = ", ".join(path.path for path in change.paths if path.replaces) or change.follows or "its URN is gone"
            found[f"{change.kind} {change.resource.type} {change.resource.name}"] = why
    return found


def reviewed(version):
    """What may go on the way from a version to this one, to the reason."""
    held = yaml.safe_load(REVIEWED.read_text()) or {}
    return held.get(version, {})


def write(version):
    for environment in ENVIRONMENTS:
        data = json.dumps(record(ROOT, environment).to_json(), sort_keys=True)
        _file(version, environment).parent.mkdir(parents=True, exist_ok=True)
        _file(version, environment).write_bytes(gzip.compress(data.encode(), mtime=0))


def _file(version, environment):
    return FOLDER / version / f"{environment}.json.gz"


def _stored(value):
    """A value as Pulumi stores it: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def main():
    """Keeps the programs of a version."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("version", help="as in pyproject.toml")
    write(parser.parse_args().version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
