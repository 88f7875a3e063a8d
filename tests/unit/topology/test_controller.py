"""The controller of HyperNodes against an API server that refuses, forgets and is slow to know what it serves."""

import io
import json
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from trainium_eks.model.volcano_config import EC2_TOPOLOGY_LABELS as LAYERS
from trainium_eks.topology import controller
from trainium_eks.topology.api import NODES, ApiStatusError, Connection
from trainium_eks.topology.controller import HYPERNODES, Controller, Nodes, switches
from trainium_eks.topology.tree import hypernodes

TWO = {"n0": dict.fromkeys(LAYERS, "nn-1"), "n1": dict.fromkeys(LAYERS, "nn-2")}

Answer = Mapping[str, Any] | list[Mapping[str, Any]] | BaseException
"""A document, the lines of a watch, or what is raised."""


class Scripted(Connection):
    """Answers as a function says; what was sent is kept."""

    def __init__(self, answer):
        self._answer = answer
        self.sent: list[str] = []

    def send(self, method, path, *_, **__):
        self.sent.append(f"{method} {path.partition('?')[0]}")
        answer = self._answer(method, path)
        if isinstance(answer, BaseException):
            raise answer
        lines = answer if isinstance(answer, list) else [answer]
        return io.BytesIO("\n".join(map(json.dumps, lines)).encode())

    def close(self):
        """Nothing is open."""


def listed(*items):
    return {"items": [*items], "metadata": {"resourceVersion": "7"}}


def node(name, version="8", **labels):
    return {"metadata": {"name": name, "labels": labels, "resourceVersion": version}}


@pytest.mark.parametrize(
    ("status", "writes", "fails"),
    [
        # One HyperNode that is refused keeps no other from being made. Another copy may have been faster (409).
        (422, 6, True),
        (409, 6, False),
        # A server in trouble is left alone.
        (500, 1, True),
        (429, 1, True),
    ],
)
def test_what_refusals_of_hypernodes_end(tmp_path, status, writes, fails):
    connection = Scripted(lambda method, _: listed() if method == "GET" else ApiStatusError(status, "refused"))
    with pytest.raises(ApiStatusError) if fails else nullcontext():
        Controller(lambda _: connection, LAYERS, tmp_path / "ready").keep(TWO)
    assert connection.sent == [f"GET {HYPERNODES}"] + [f"POST {HYPERNODES}"] * writes
    assert (tmp_path / "ready").exists() is not fails


def test_where_hypernodes_are_not_defined_there_are_none_to_keep(tmp_path):
    connection = Scripted(lambda *_: ApiStatusError(404, "no such kind"))
    Controller(lambda _: connection, LAYERS, tmp_path / "ready").keep(TWO)
    assert (connection.sent, (tmp_path / "ready").exists()) == ([f"GET {HYPERNODES}"], True)


def test_nothing_is_written_before_the_nodes_are_known_or_where_all_is_well(tmp_path):
    connection = Scripted(lambda *_: listed(*hypernodes(TWO, LAYERS).values()))
    made = Controller(lambda _: connection, LAYERS, tmp_path / "ready")
    made.keep(None)
    assert (connection.sent, (tmp_path / "ready").exists()) == ([], False)
    made.keep(TWO)
    assert connection.sent == [f"GET {HYPERNODES}"]


def test_nodes_are_followed_and_only_their_switches_count():
    changed = threading.Event()
    seen: list[tuple[Any, bool]] = []

    def event(type_, name, version="8", **labels):
        return {"type": type_, "object": node(name, version, **labels)}

    def answer(_method, path):
        if "watch=" not in path:
            return listed(node("n0", **{LAYERS[2]: "nn-1"}), node("cpu"))
        seen.append((dict(nodes.found or {}), changed.is_set()))
        changed.clear()
        return next(watches)

    nodes = Nodes(Scripted(answer), switches(LAYERS), changed)
    watches = iter(
        [
            [event("MODIFIED", "n0", **{LAYERS[2]: "nn-1", "other": "label"}), event("BOOKMARK", "")],
            [event("ADDED", "n1", **{LAYERS[2]: "nn-2"})],
            [event("MODIFIED", "n1", **{LAYERS[2]: "nn-3"}), event("DELETED", "n0", "99")],
            [],
        ]
    )
    for _ in range(4):
        nodes.follow()
    n0 = {"n0": {LAYERS[2]: "nn-1"}}
    both, n1 = {**n0, "n1": {LAYERS[2]: "nn-2"}}, {"n1": {LAYERS[2]: "nn-3"}}
    assert seen == [(n0, True), (n0, False), (both, True), (n1, True)]


def test_after_a_failure_it_goes_on_and_lists_anew_only_where_the_version_is_forgotten(monkeypatch):
    class Ended(BaseException):
        """The script is at its end."""

    monkeypatch.setattr(controller.time, "sleep", lambda _: None)
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
    watches = iter([OSError("cut off"), [], [gone], Ended()])
    connection = Scripted(lambda _method, path: next(watches) if "watch=" in path else listed())
    with pytest.raises(Ended):
        Nodes(connection, switches(LAYERS), threading.Event()).run()
    # One list before the first watch, and one after the third; else each list is followed by its watch.
    assert connection.sent == [f"GET {NODES}"] * 6
