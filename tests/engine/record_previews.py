"""Record the previews of ``tests/unit/operate/review/previews``, when the dev stack gains what a rule asks of all.

Run it as ``PYTHONPATH=.:tests python tests/engine/record_previews.py``; needs the Pulumi CLI on PATH, and no account.
"""

import gzip
import json
import tempfile
from pathlib import Path

from engine.config_changes import CHANGES, VISION
from engine.rig import REPOSITORY, Rig, succeeded

FOLDER = REPOSITORY / "tests" / "unit" / "operate" / "review" / "previews"
STACK = "dev"


def many_edits(config):
    """Edits that meet most parts of a comment."""
    config["trainium-eks:cluster"]["endpoint"]["publicAccessCidrs"] = ["203.0.113.0/24"]
    config["trainium-eks:costCenter"] = "research"
    config["trainium-eks:fileSystem"]["durability"]["retentionDays"] = 3
    config["trainium-eks:namespaces"].append(VISION)
    config["trainium-eks:nodeGroups"][0]["maxSize"] = 16


def without_traces(value):
    """Return a document without the places in the program that made each resource."""
    if isinstance(value, dict):
        kept = value.keys() - {"stackTrace", "sourcePosition"}
        return {key: without_traces(value[key]) for key in kept}
    return [without_traces(below) for below in value] if isinstance(value, list) else value


def write(rig, name):
    code, document, said = rig.preview_document(STACK, "--show-sames")
    assert code == 0, said
    text = json.dumps(without_traces(document), sort_keys=True)
    (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        rig = Rig(Path(directory))
        rig.begin(STACK)
        write(rig, "environment-new")
        succeeded(rig.up(STACK))
        for name, edit in (("instance-type", CHANGES["instance type"]), ("many-edits", many_edits)):
            rig.configure(STACK, edit)
            write(rig, name)
