"""The controller of HyperNodes against an API server that refuses, forgets and is slow to know what it serves."""

import io
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
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

    def __init__(self, answer: Callable[[str, str], Answer]) -> None:
        self._answer = answer
        self.sent: list[str] = []

    def send(self, method: str, path: str, *_: Any, **__: Any) -> Any:
        self.sent.append(f"{method} {path.partition('?')[0]}")
        answer = self._answer(method, path)
        if isinstance(answer, BaseException):
            raise answer
        lines = answer if isinstance(answer, list) else [answer]
        return io.BytesIO("\n".join(map(json.dumps, lines)).encode())

    def close(self) -> None:
        """Nothing is open."""


def listed(*items: Mapping[str, Any], version: str = "7") -> Answer:
    return {"items": [*items], "metadata": {"resourceVersion": version}}


def node(name: str, version: str = "8", **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels, "resourceVersion": version}}


def kept(answer: Callable[[str, str], Answer], ready: Path) -> tuple[list[str], BaseException | None]:
    """What the controller writes for two nodes, and how that ends."""
    connection = Scripted(answer)
    try:
        Controller(lambda _: connection, LAYERS, ready).keep(TWO)
    except ApiStatusError as error:
        return [each for each in connection.sent if not each.startswith("GET")], error
    return [each for each in connection.sent if not each.startswith("GET")], None


@pytest.mark.parametrize("status", [422, 409])
def test_a_refusal_of_one_hypernode_keeps_no_other_from_being_made(tmp_path: Path, status: int) -> None:
    def answer(method: str, _path: str) -> Answer:
        return listed() if method == "GET" else ApiStatusError(status, "refused")

    written, error = kept(answer, tmp_path / "ready")
    assert written == [f"POST {HYPERNODES}"] * 6
    # Another copy may have been faster; all else is an error, and the controller is not ready.
    assert (error is None) == (status == 409) == (tmp_path / "ready").exists()


@pytest.mark.parametrize("status", [500, 429])
def test_an_api_server_in_trouble_is_left_alone(tmp_path: Path, status: int) -> None:
    def answer(method: str, _path: str) -> Answer:
        return listed() if method == "GET" else ApiStatusError(status, "busy")

    written, error = kept(answer, tmp_path / "ready")
    assert (len(written), error is not None) == (1, True)


def test_where_hypernodes_are_not_defined_there_are_none_to_keep(tmp_path: Path) -> None:
    assert kept(lambda *_: ApiStatusError(404, "no such kind"), tmp_path / "ready") == ([], None)
    assert (tmp_path / "ready").exists()


def test_nothing_is_written_before_the_nodes_are_known_or_where_all_is_well(tmp_path: Path) -> None:
    connection = Scripted(lambda *_: listed(*hypernodes(TWO, LAYERS).values()))
    made = Controller(lambda _: connection, LAYERS, tmp_path / "ready")
    made.keep(None)
    assert (connection.sent, (tmp_path / "ready").exists()) == ([], False)
    made.keep(TWO)
    assert connection.sent == [f"GET {HYPERNODES}"]


def test_nodes_are_followed_and_only_their_switches_count() -> None:
    changed = threading.Event()
    seen: list[tuple[Any, bool]] = []

    def event(type_: str, about: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": type_, "object": about}

    def answer(_method: str, path: str) -> Answer:
        if "watch=" not in path:
            return listed(node("n0", **{LAYERS[2]: "nn-1"}), node("cpu"))
        seen.append((dict(nodes.found or {}), changed.is_set()))
        changed.clear()
        return next(watches)

    nodes = Nodes(Scripted(answer), switches(LAYERS), changed)
    watches = iter(
        [
            [event("MODIFIED", node("n0", **{LAYERS[2]: "nn-1", "other": "label"})), event("BOOKMARK", node(""))],
            [event("ADDED", node("n1", **{LAYERS[2]: "nn-2"}))],
            [event("MODIFIED", node("n1", **{LAYERS[2]: "nn-3"})), event("DELETED", node("n0", version="99"))],
            [],
        ]
    )
    for _ in range(4):
        nodes.follow()
    n0 = {"n0": {LAYERS[2]: "nn-1"}}
    assert seen == [
        (n0, True),
        (n0, False),
        ({**n0, "n1": {LAYERS[2]: "nn-2"}}, True),
        ({"n1": {LAYERS[2]: "nn-3"}}, True),
    ]


def test_after_a_failure_it_goes_on_and_lists_anew_only_where_the_version_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
