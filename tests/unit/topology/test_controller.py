"""The controller of HyperNodes against an API server that refuses, forgets and is slow to know what it serves."""

import io
import json
import threading
from contextlib import nullcontext
from http.client import HTTPConnection

import pytest
from staging_servers import Handler, serving

from trainium_eks.model.node_labels import EC2_TOPOLOGY_LABELS as LAYERS
from trainium_eks.topology import api, controller
from trainium_eks.topology.api import NODES, ApiStatusError, Connection
from trainium_eks.topology.controller import HYPERNODES, Controller, Nodes, switches
from trainium_eks.topology.tree import hypernodes

TWO = {"n0": dict.fromkeys(LAYERS, "nn-1"), "n1": dict.fromkeys(LAYERS, "nn-2")}


class Ended(BaseException):
    """The script is at its end."""


class Scripted(Connection):
    """Answers as a function says: a document, the lines of a watch, or what is raised. What was sent is kept."""

    def __init__(self, answer):
        self._answer = answer
        self.sent = []

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
def test_refused_hypernode_ends_the_controller_or_is_skipped(tmp_path, status, writes, fails):
    connection = Scripted(lambda method, _: listed() if method == "GET" else ApiStatusError(status, "refused"))
    with pytest.raises(ApiStatusError) if fails else nullcontext():
        Controller(lambda _: connection, LAYERS, tmp_path / "ready").keep(TWO)
    assert connection.sent == [f"GET {HYPERNODES}"] + [f"POST {HYPERNODES}"] * writes
    assert (tmp_path / "ready").exists() is not fails


def test_controller_is_ready_without_the_hypernode_definition(tmp_path):
    connection = Scripted(lambda *_: ApiStatusError(404, "no such kind"))
    Controller(lambda _: connection, LAYERS, tmp_path / "ready").keep(TWO)
    assert (connection.sent, (tmp_path / "ready").exists()) == ([f"GET {HYPERNODES}"], True)


def test_controller_writes_nothing_before_the_nodes_or_without_a_change(tmp_path):
    connection = Scripted(lambda *_: listed(*hypernodes(TWO, LAYERS).values()))
    made = Controller(lambda _: connection, LAYERS, tmp_path / "ready")
    made.keep(None)
    assert (connection.sent, (tmp_path / "ready").exists()) == ([], False)
    made.keep(TWO)
    assert connection.sent == [f"GET {HYPERNODES}"]


def test_node_changes_count_only_for_their_switches():
    changed = threading.Event()
    seen = []

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


def test_controller_resumes_after_a_failure_and_relists_on_expiry(monkeypatch):
    monkeypatch.setattr(controller.time, "sleep", lambda _: None)
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
    watches = iter([OSError("cut off"), [], [gone], Ended()])
    connection = Scripted(lambda _method, path: next(watches) if "watch=" in path else listed())
    with pytest.raises(Ended):
        Nodes(connection, switches(LAYERS), threading.Event()).run()
    # One list before the first watch, and one after the third; else each list is followed by its watch.
    assert connection.sent == [f"GET {NODES}"] * 6


def test_failed_round_is_repeated_with_growing_pauses(monkeypatch, capsys):
    slept, changed = [], threading.Event()
    monkeypatch.setattr(controller.time, "sleep", lambda seconds: slept.append((seconds, changed.is_set())))
    troubles = iter([OSError("cut off"), ValueError(), None, OSError("again"), *[OSError()] * 5, Ended()])

    def work():
        if (trouble := next(troubles)) is not None:
            raise trouble

    with pytest.raises(Ended):
        controller.rounds(changed, work, "gate", look_seconds=0, settle_seconds=0.5)
    pauses = [(seconds, again) for seconds, again in slept if seconds != 0.5]
    assert pauses == [(seconds, True) for seconds in (1, 2, 1, 2, 4, 8, 15, 15)]
    assert capsys.readouterr().out.startswith("gate: cut off; trying again in 1 s\n")


def test_connection_reads_all_pages_and_reconnects_after_a_refusal(monkeypatch, tmp_path):
    class ApiServer(Handler):
        def do_GET(self):  # noqa: N802 - the server's names
            seen.append((self.path, self.headers["Authorization"], self.headers["Accept"], self.client_address))
            pages = {"/a?limit=500&labelSelector=b%3Dc": "next", "/a?limit=500&continue=next&labelSelector=b%3Dc": ""}
            more = pages.get(self.path)
            body = json.dumps({"items": [self.path], "metadata": {"continue": more, "resourceVersion": "7"}}).encode()
            self.answer(404 if more is None else 200, {"Content-Length": len(body)})
            self.wfile.write(body)

    seen = []
    (tmp_path / "token").write_text("t")
    monkeypatch.setattr(api.ssl, "create_default_context", lambda **_: None)
    monkeypatch.setattr(
        api.http.client, "HTTPSConnection", lambda *at, timeout, **_: HTTPConnection(*at, timeout=timeout)
    )
    with serving(ApiServer) as url:
        connection = Connection("127.0.0.1", int(url.rpartition(":")[2]), tmp_path)
        found, version = connection.items("/a", labels="b=c")
        assert (found, version) == ([path for path, *_ in seen], "7")
        with pytest.raises(ApiStatusError, match="404 GET /b: ") as refused:
            connection.send("GET", "/b", accept="of metadata")
        assert refused.value.status == 404
        connection.send("GET", "/a?limit=500&labelSelector=b%3Dc").read()
        connection.close()
    assert {(token, accept) for _, token, accept, _ in seen} == {
        ("Bearer t", "application/json"),
        ("Bearer t", "of metadata"),
    }
    first, second, third, anew = (client for *_, client in seen)
    assert (first == second == third, third == anew) == (True, False)
