"""The controller of HyperNodes: it watches nodes, and keeps the HyperNodes that their labels ask for.

It runs in a pod that has Python and nothing else. Every change can be made twice without harm, so it elects no leader
and keeps no state. Without it the HyperNodes stay as they are.

``python -m trainium_eks.topology.controller --account DIRECTORY --ready FILE LABEL...``, the widest layer first.
"""

import argparse
import contextlib
import http
import json
import os
import signal
import sys
import threading
import time
import traceback
import urllib.parse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainium_eks.topology.api import MERGE, NODES, REQUEST_SECONDS, ApiStatusError, Connection, Failures, Object
from trainium_eks.topology.tree import API_VERSION, Change, changes, hypernodes

HYPERNODES = f"/apis/{API_VERSION}/hypernodes"

SETTLE_SECONDS = 0.5
"""Between a change of a node's switches and the answer to it: all that happens meanwhile is answered together."""
LOOK_SECONDS = 30.0
"""How often HyperNodes are looked at where no node changes: somebody may have deleted one."""

_PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds before the next try after one failure, two in a row, and so on."""
WATCH_SECONDS = 240
"""After which the API server ends a watch. A connection that is silent for longer is lost."""
# A Node has some 20 KB, most of it the names of images; its metadata are enough.
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"


class Nodes(threading.Thread):
    """The facts of the cluster's nodes that a controller works by, as the API server tells of them.

    ``facts`` returns the facts of a node, or nothing for a node that does not matter; with ``whole`` it gets more of a
    node than its metadata. ``changed`` is set when a node comes, goes or gets other facts.
    """

    def __init__(
        self,
        connection: Connection,
        facts: Callable[[Object], Mapping[str, Any]],
        changed: threading.Event,
        *,
        whole: bool = False,
    ) -> None:
        super().__init__(daemon=True, name="nodes")
        self.found: dict[str, Mapping[str, Any]] | None = None
        """Node to its facts, of nodes that have any; None until all were listed. Copy it before you iterate."""
        self._connection = connection
        self._facts = facts
        self._changed = changed
        self._accept = "application/json" if whole else _METADATA
        self._version = ""

    def run(self) -> None:
        """Follow the nodes for ever."""
        failures = 0
        while True:
            try:
                self.follow()
                failures = 0
            except Failures as error:
                self._connection.close()
                if isinstance(error, ApiStatusError) and error.status == http.HTTPStatus.GONE:
                    self._version = ""  # the server has forgotten what came after it
                    continue
                failures += 1
                pause(failures, f"nodes: {str(error) or type(error).__name__}")

    def follow(self) -> None:
        """List the nodes where that has not been done, and take changes in until the server ends the watch."""
        if not self._version:
            found, self._version = self._connection.items(NODES, self._accept.format("List"))
            listed = {each["metadata"]["name"]: self._facts(each) for each in found}
            self.found = {name: facts for name, facts in listed.items() if facts}
            self._changed.set()
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_SECONDS}
        path = f"{NODES}?{urllib.parse.urlencode({**query, 'resourceVersion': self._version})}"
        with self._connection.send("GET", path, accept=self._accept.format("")) as answer:
            for line in answer:
                event = json.loads(line)
                node = event["object"]
                if event["type"] == "ERROR":
                    raise ApiStatusError(int(node.get("code") or 500), str(node.get("message")))
                if event["type"] != "BOOKMARK":
                    self._put(node["metadata"]["name"], {} if event["type"] == "DELETED" else self._facts(node))
                self._version = node["metadata"]["resourceVersion"]

    def _put(self, name: str, facts: Mapping[str, Any]) -> None:
        assert self.found is not None, "a watch follows a list"
        if self.found.get(name, {}) != facts:
            if facts:
                self.found[name] = facts
            else:
                del self.found[name]
            self._changed.set()


def switches(layers: Sequence[str]) -> Callable[[Object], Mapping[str, str]]:
    """Return the function that picks a node's labels of these layers."""

    def picked(node: Object) -> Mapping[str, str]:
        labels = node["metadata"].get("labels") or {}
        return {layer: labels[layer] for layer in layers if layer in labels}

    return picked


class Controller:
    """Keeps the HyperNodes of a cluster.

    ``connect`` opens a connection, given the limit of an answer in seconds. ``layers`` are node labels, the widest
    layer first. The file ``ready`` is written once the HyperNodes are as they should be.
    """

    def __init__(self, connect: Callable[[float], Connection], layers: Sequence[str], ready: Path) -> None:
        self._layers = layers
        self._ready = ready
        self._changed = threading.Event()
        self._connection = connect(REQUEST_SECONDS)
        self._nodes = Nodes(connect(WATCH_SECONDS + REQUEST_SECONDS), switches(layers), self._changed)

    def run(self) -> None:
        """Watch nodes and keep HyperNodes for ever."""
        self._nodes.start()
        rounds(self._changed, lambda: self.keep(self._nodes.found), "HyperNodes", LOOK_SECONDS, SETTLE_SECONDS)

    def keep(self, nodes: Mapping[str, Mapping[str, str]] | None) -> None:
        """Make the HyperNodes of these nodes, each with its labels, as they should be; do nothing where they are not
        known yet. With one of :data:`Failures` earlier changes of the round stay."""
        if nodes is None:
            return
        # The time between two rounds is long enough for the API server to end an unused connection.
        with contextlib.closing(self._connection) as connection:
            try:
                found, _ = connection.items(HYPERNODES)
            except ApiStatusError as error:
                if error.status != http.HTTPStatus.NOT_FOUND:
                    raise
                found, nodes = [], {}  # without Volcano's definitions there is nothing to keep
            due = changes(hypernodes(dict(nodes), self._layers), {each["metadata"]["name"]: each for each in found})
            refusals = [refusal for change in due if (refusal := _make(connection, change))]
        if due:
            verbs = Counter(change.verb for change in due)
            say(f"HyperNodes of {len(nodes)} nodes: " + ", ".join(f"{verbs[verb]} to {verb}" for verb in verbs))
        if refusals:
            raise refusals[0]
        self._ready.touch()


def _make(connection: Connection, change: Change) -> ApiStatusError | None:
    """Send one change. Return a refusal of this change alone, which keeps no other from being made."""
    path = HYPERNODES if change.verb == "create" else f"{HYPERNODES}/{change.name}"
    method = {"create": "POST", "update": "PATCH", "delete": "DELETE"}[change.verb]
    content = MERGE if change.verb == "update" else ""
    try:
        connection.send(method, path, change.body or None, content=content).read()
    except ApiStatusError as error:
        if error.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR or error.status == http.HTTPStatus.TOO_MANY_REQUESTS:
            raise
        # Another copy of the controller, or a person, was faster.
        faster = http.HTTPStatus.CONFLICT if change.verb == "create" else http.HTTPStatus.NOT_FOUND
        return None if error.status == faster else error
    return None


def rounds(
    changed: threading.Event, work: Callable[[], None], name: str, look_seconds: float, settle_seconds: float = 0.0
) -> None:
    """Do the work ``settle_seconds`` after each change, at least every ``look_seconds``, and again after each of
    :data:`Failures`, for ever."""
    failures = 0
    while True:
        changed.wait(look_seconds)
        time.sleep(settle_seconds)
        changed.clear()
        try:
            work()
            failures = 0
        except Failures as error:
            failures += 1
            changed.set()
            pause(failures, f"{name}: {str(error) or type(error).__name__}")


def pause(failures: int, trouble: str) -> None:
    """Say what the trouble is, and wait before the next try."""
    seconds = _PAUSES[min(failures, len(_PAUSES)) - 1]
    say(f"{trouble}; trying again in {seconds:g} s")
    time.sleep(seconds)


def say(line: str) -> None:
    """Write a line to the log."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _end(failed: threading.ExceptHookArgs) -> None:
    """End the process with a thread that failed, so that the pod is started again."""
    traceback.print_exception(failed.exc_value)
    sys.stderr.flush()
    os._exit(1)


def connector(account: Path) -> Callable[[float], Connection]:
    """Return the function that opens connections with a pod's service account, and make this process end as a pod's
    should: with SIGTERM, and with any thread that fails."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    # The first process of a container ignores SIGTERM unless it says otherwise.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.excepthook = _end
    return lambda seconds: Connection(host, port, account, seconds)


def main(arguments: Sequence[str]) -> None:
    """Run the controller with a pod's service account; see the module."""
    parser = argparse.ArgumentParser(prog="controller")
    parser.add_argument("--account", type=Path, required=True)
    parser.add_argument("--ready", type=Path, required=True)
    parser.add_argument("layers", nargs="+")
    given = parser.parse_args(arguments)
    Controller(connector(given.account), given.layers, given.ready).run()


if __name__ == "__main__":
    main(sys.argv[1:])
