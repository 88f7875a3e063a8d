"""A team's seat before a recorded scene: the commands that watch jobs, called against a server that serves it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster_snapshots import outputs
from recorded_scenes import Snapshot
from small_project import Run
from stub_api import StubApi, serving

Call = Callable[..., tuple[int, str]]
"""Calls a command with these arguments: its exit code and what it printed."""


@contextmanager
def cluster(scene: Snapshot) -> Iterator[StubApi]:
    """A server with the objects of a scene."""
    with serving({kind: objects for kind, objects in scene.items() if isinstance(objects, list)}) as stub:
        yield stub


def researcher(trn: Run, stub: StubApi, folder: Path) -> Call:
    """Calls commands as the team ``training`` of that server."""
    file = outputs_file(stub, folder)

    def call(*arguments: object) -> tuple[int, str]:
        result = trn(*arguments, "--outputs", file)
        return result.exit_code, result.output

    return call


def outputs_file(stub: StubApi, folder: Path) -> Path:
    """The file with the outputs of the stack of that server, with the team ``training``."""
    file = folder / "outputs.json"
    known = outputs().model_dump(by_alias=True)
    team = {**known["namespaces"][0], "name": "training"}
    file.write_text(json.dumps({**known, "namespaces": [team], "kubeconfig": json.dumps(stub.kubeconfig)}))
    return file
