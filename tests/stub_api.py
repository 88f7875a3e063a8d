"""A Kubernetes API server over plain HTTP that serves one snapshot: discovery, lists, single objects, deletion, logs,
and WebSockets as its ``exec`` and ``portforward`` speak them (enough of RFC 6455).

Binary messages begin with the number of their channel (``v4.channel.k8s.io``): 1 is standard output, 2 standard error,
3 the end, as a ``Status``. A forwarded port has channel 0 for data and 1 for errors, each begun by the port's number.
"""

import base64
import contextlib
import copy
import hashlib
import json
import re
import struct
import time
from contextlib import contextmanager
from urllib.parse import parse_qs

import web_server
from web_server import Handler

from trainium_eks.diagnose.cluster_state import CHECKED_KINDS

SERVED = {
    **CHECKED_KINDS,
    "Pod": "v1",
    "Event": "v1",
    "Job": "batch.volcano.sh/v1alpha1",
    "PodGroup": "scheduling.volcano.sh/v1beta1",
    "ResourceQuota": "v1",
    "ConfigMap": "v1",
}
NAMESPACED = frozenset(
    {"Pod", "Event", "Job", "PodGroup", "ResourceQuota", "PersistentVolumeClaim", "ServiceAccount", "ConfigMap"}
    | {"DaemonSet", "StatefulSet", "Deployment"}
)

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CLOSE = 2, 8


class Channel:
    """One connection, on the server's side."""

    def __init__(self, handler):
        self._handler = handler
        key = handler.headers["Sec-WebSocket-Key"]
        accept = base64.b64encode(hashlib.sha1(f"{key}{_MAGIC}".encode()).digest()).decode()
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept}
        handler.answer(101, {**headers, "Sec-WebSocket-Protocol": "v4.channel.k8s.io"})

    def send(self, channel, data):
        self._frame(_BINARY, bytes([channel]) + data)

    def close(self):
        """Says that no more comes."""
        with contextlib.suppress(OSError):
            self._frame(_CLOSE, struct.pack(">H", 1000))

    def received(self):
        """Messages of the other side: channel and data; until it closes."""
        while True:
            head = self._handler.rfile.read(2)
            if len(head) < 2 or head[0] & 0x0F == _CLOSE:
                return
            size = head[1] & 0x7F
            if size >= 126:
                size = int.from_bytes(self._handler.rfile.read(2 if size == 126 else 8), "big")
            mask = self._handler.rfile.read(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self._handler.rfile.read(size)))
            if data:
                yield data[0], data[1:]

    def _frame(self, kind, data):
        size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
        self._handler.wfile.write(bytes([0x80 | kind]) + size + data)
        self._handler.wfile.flush()


def _status(reason, message):
    return {"kind": "Status", "reason": reason, "message": message}


class StubApi:
    """What it serves may be changed while it runs."""

    def __init__(self, objects, url):
        self.objects = copy.deepcopy(objects)
        self.url = url
        self.refuses = {}
        """Path to the HTTP status that it is answered with."""
        self.looks = 0
        """How often its version was asked."""
        self.before_look = lambda _: None
        """Told the number of each look before it is answered."""
        self.logs = {}
        """Pod to the lines of its log, each with its time before it. One that is followed is looked at again and again
        until the pod has ended."""
        self.deleted = []
        """Paths of what was deleted."""
        self.channels = {}
        """``<pod>/exec`` or ``<pod>/portforward`` to what is spoken there."""
        self.after_create = lambda _: None
        """Told of each object that was created."""
        self.asked = []
        """Paths and queries of the logs that were asked for."""

    @property
    def kubeconfig(self):
        """Without any credential."""
        clusters = [{"name": "stub", "cluster": {"server": self.url}}]
        contexts = [{"name": "stub", "context": {"cluster": "stub", "user": "stub"}}]
        parts = {"clusters": clusters, "users": [{"name": "stub", "user": {}}], "contexts": contexts}
        return {"apiVersion": "v1", "kind": "Config", **parts, "current-context": "stub"}

    def answer(self, path, labels=""):
        """Status and body; of a list, the objects with these labels (``a=b,c=d``)."""
        if path in self.refuses:
            return self.refuses[path], _status("Forbidden", f"{path} is forbidden")
        if path == "/version":
            self.looks += 1
            self.before_look(self.looks)
            return 200, {"gitVersion": "v1.35.4"}
        if path == "/apis/apiextensions.k8s.io/v1/customresourcedefinitions":
            return 200, {"items": []}
        for kind, api_version in SERVED.items():
            root = f"/{'apis' if '/' in api_version else 'api'}/{api_version}"
            if re.sub("/namespaces/[^/]+/", "/", path) == f"{root}/{kind.lower()}s":
                wanted = dict(each.split("=") for each in labels.split(",") if each)
                every = self.objects.get(kind, [])
                chosen = [each for each in every if wanted.items() <= (each["metadata"].get("labels") or {}).items()]
                return 200, {"items": chosen, "metadata": {}}
            found = re.fullmatch(f"{root}(?:/namespaces/[^/]+)?/{kind.lower()}s/([^/]+)", path)
            if found and (one := self.named(kind, found[1])):
                return 200, {"apiVersion": api_version, "kind": kind, **one}
            if path == root:
                served = [each for each, version in SERVED.items() if version == api_version]
                return 200, {
                    "resources": [
                        {"kind": each, "name": f"{each.lower()}s", "namespaced": each in NAMESPACED} for each in served
                    ]
                }
        return 404, _status("NotFound", f"{path} is not there")

    def named(self, kind, name):
        return next((each for each in self.objects.get(kind, []) if each["metadata"]["name"] == name), None)

    def create(self, path, body, *, dry_run=False):
        if path in self.refuses:
            return self.answer(path)
        kind, name = body["kind"], body["metadata"]["name"]
        if self.named(kind, name):
            return 409, _status("AlreadyExists", f"{kind} {name} already exists")
        made = copy.deepcopy(body)
        made["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": "2026-11-22T05:33:04Z"}
        if not dry_run:
            self.objects.setdefault(kind, []).append(made)
            self.after_create(made)
        return 201, made

    def delete(self, path):
        """Status and body; with a job go its pods."""
        status, one = self.answer(path)
        if status == 200:
            self.deleted.append(path)
            name, kind = one["metadata"]["name"], one["kind"]
            self.objects[kind] = [each for each in self.objects[kind] if each["metadata"]["name"] != name]
            if kind == "Job":
                pods = self.objects.get("Pod", [])
                self.objects["Pod"] = [pod for pod in pods if not pod["metadata"]["name"].startswith(f"{name}-")]
        return status, one

    def log(self, pod, *, follow, tail):
        """The lines of a pod's log; those to come, too, until it has ended."""
        at = max(len(self.logs.get(pod, [])) - tail, 0)
        uid = (self.named("Pod", pod) or {"metadata": {}})["metadata"].get("uid")
        while True:
            found = self.named("Pod", pod)
            is_there = found is not None and found["metadata"].get("uid") == uid
            # First whether it has ended, then its log, which is then complete.
            has_ended = not is_there or found["status"]["phase"] != "Running"  # type: ignore[index]
            for line in self.logs.get(pod, [])[at:] if is_there else ():
                yield line
                at += 1
            if not follow or has_ended:
                return
            time.sleep(0.02)


@contextmanager
def serving(objects):
    class Api(Handler):
        protocol_version = "HTTP/1.0"

        def do_GET(self):  # noqa: N802 - the name that the server calls
            path, _, query = self.path.partition("?")
            speaking = re.fullmatch("/api/v1/namespaces/[^/]+/pods/([^/]+/(?:exec|portforward))", path)
            if speaking and speaking[1] in stub.channels and path not in stub.refuses:
                stub.asked.append(self.path)
                self.close_connection = True
                stub.channels[speaking[1]](Channel(self))
                return
            log = re.fullmatch("/api/v1/namespaces/[^/]+/pods/([^/]+)/log", path)
            if log and path not in stub.refuses and stub.named("Pod", log[1]):
                stub.asked.append(self.path)
                asked = parse_qs(query)
                tail = int(asked.get("tailLines", ["1000000"])[0])
                self._stream(stub.log(log[1], follow="follow" in asked, tail=tail))
            else:
                self._answer(*stub.answer(path, parse_qs(query).get("labelSelector", [""])[0]))

        def do_POST(self):  # noqa: N802 - the name that the server calls
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            path, _, query = self.path.partition("?")
            if path.endswith("/selfsubjectaccessreviews"):
                self._answer(201, {**body, "status": {"allowed": True}})
            else:
                self._answer(*stub.create(path, body, dry_run="dryRun" in query))

        def do_DELETE(self):  # noqa: N802 - the name that the server calls
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._answer(*stub.delete(self.path.partition("?")[0]))

        def _stream(self, lines):
            # In chunks, as the API server does it: of another answer nothing is read before there is much of it.
            self.protocol_version = "HTTP/1.1"
            self.close_connection = True
            self.answer(200, {"Transfer-Encoding": "chunked"})
            for line in lines:
                text = f"{line}\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
            self.wfile.write(b"0\r\n\r\n")

        def _answer(self, status, body):
            data = json.dumps(body).encode()
            self.answer(status, {"Content-Length": len(data)}, data)

    stub = StubApi(objects, "")
    with web_server.serving(Api) as stub.url:
        yield stub


def run_command(lines, code=0):
    """What ``exec`` of a command says that prints these lines and ends with this code."""

    def speak(channel):
        for line in lines:
            # Lines are cut anywhere on their way.
            half = len(line) // 2
            channel.send(1, line[:half].encode())
            channel.send(1, f"{line[half:]}\n".encode())
        causes = {"causes": [{"reason": "ExitCode", "message": str(code)}]}
        failure = {"status": "Failure", "reason": "NonZeroExitCode", "details": causes}
        status = failure if code else {"status": "Success"}
        channel.send(3, json.dumps(status).encode())
        channel.close()

    return speak


def answer_http(body, at=6006):
    """A forwarded port behind which a web server answers one request."""

    def speak(channel):
        for number in (0, 1):
            channel.send(number, struct.pack("<H", at))
        asked = b""
        for number, data in channel.received():
            asked += data if number == 0 else b""
            if asked.endswith(b"\r\n\r\n"):
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                channel.send(0, f"{head}{body}".encode())
                channel.close()
                return

    return speak
