"""A team's seat before a recorded scene: the commands that watch jobs, called against a server that serves it."""

import json
import shlex
from contextlib import contextmanager
from dataclasses import dataclass

from cluster_snapshots import outputs
from outcome import ends
from small_project import Run
from stub_api import serving


@dataclass(frozen=True)
class Call:
    """Calls commands of a team, each with these options."""

    run: Run
    options: tuple[object, ...]

    def __call__(self, *words):
        result = self.run(*words, *self.options)
        return result.exit_code, result.output

    def ends(self, code, line, *words):
        """Call a command line, hold it to its exit code and words, and return what it said."""
        return ends(code, self.run(*shlex.split(line), *self.options), *words)


@contextmanager
def cluster(scene):
    with serving({kind: objects for kind, objects in scene.items() if isinstance(objects, list)}) as stub:
        yield stub


def researcher(trn, stub, folder, *options):
    """Calls commands as the team ``training`` of that server."""
    return Call(trn, ("--outputs", outputs_file(stub, folder), *options))


def outputs_file(stub, folder):
    """The file with the outputs of the stack of that server, with the team ``training``."""
    file = folder / "outputs.json"
    known = outputs().model_dump(by_alias=True)
    team = {**known["namespaces"][0], "name": "training"}
    file.write_text(json.dumps({**known, "namespaces": [team], "kubeconfig": json.dumps(stub.kubeconfig)}))
    return file


def end(api, job="alpha", state="Completed"):
    """End a job, and its pods with it."""
    for pod in api.objects["Pod"]:
        if pod["metadata"]["name"].startswith(job):
            pod["status"]["phase"] = "Succeeded" if state == "Completed" else "Failed"
    at = "2026-11-22T05:40:00Z"
    api.named("Job", job)["status"]["state"] = {"phase": state, "lastTransitionTime": at}
