"""Fake tools, a fake Go, servers and images for tests of the toolchain."""

import contextlib
import hashlib
import io
import json
import tarfile
import urllib.parse
from dataclasses import dataclass, field, replace

import pytest
from web_server import Handler, serving

from trainium_eks.local.toolchain import UnavailableError, provide

VERSIONS = {
    "etcd": "etcd Version: 3.6.5",
    "kube-apiserver": "Kubernetes v1.35.4",
    "kube-controller-manager": "Kubernetes v1.35.4",
    "kube-scheduler": "Kubernetes v1.35.4",
    "kubectl": "Client Version: v1.35.4",
    "kwok": "kwok version v0.6.1 go1.25.0 (linux/amd64)",
    "helm": "v3.19.5+g1234567",
}
"""What the pinned tools answer."""


def tool_text(answer):
    return f"#!/bin/sh\necho '{answer}'\n".encode()


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o755)
    return path


def tools(directory, **answers):
    """All tools at the pinned versions; ``kube_apiserver="Kubernetes v1.30.0"`` for another one, "" for none."""
    for name, answer in VERSIONS.items():
        if answer := answers.get(name.replace("-", "_"), answer):
            executable(directory / name, tool_text(answer))


GO = r"""#!/bin/sh
PATH=/usr/bin:/bin
here=$(dirname "$0")
echo "$@" >> "$here/go.calls"
env > "$here/go.environment"
case "$1" in
env) echo "${FAKE_GO_VERSION:-go1.25.1}" ;;
mod)
    mkdir -p "$here/source/pkg/apis/scheduling/v1beta1"
    echo 'package source' > "$here/source/of_the_module.go"
    chmod -R a-w "$here/source"
    printf '{"Path": "%s", "Dir": "%s"}\n' "$4" "$here/source"
    ;;
build)
    exec >&2 # as go, which has its progress and its complaints there
    cp go.mod go.sum "$here/"
    kubernetes=$(sed -n 's,.*k8s.io/kubernetes v\([0-9.]*\).*,\1,p' go.mod)
    [ ! -d apis ] || cp -r apis "$here/"
    FAKE_BUILD
    shift
    for package; do
        case "$package" in
        go.etcd.io/*) made=server answer='etcd Version: 3.6.5' ;;
        k8s.io/kubernetes/*) made=${package##*/} answer="Kubernetes v$kubernetes" ;;
        sigs.k8s.io/kwok/*) made=kwok answer='kwok version v0.6.1 go1.25' ;;
        helm.sh/*) made=helm answer='v3.19.5' ;;
        volcano.sh/*) made=${package##*/} answer='Version: v1.15.1' ;;
        github.com/kubeflow/*) made=training-operator.v1 answer=none ;;
        github.com/prometheus/*) made=${package##*/} answer="$made, version 3.13.5 (branch: , revision: unknown)" ;;
        *) continue ;;
        esac
        mkdir -p out
        echo "$package"
        printf "#!/bin/sh\necho '%s'\n" "$answer" > "out/$made"
        chmod +x "out/$made"
    done
    ;;
esac
"""


def go(directory, build=":"):
    """A Go that makes tools which answer right, after the given shell commands. Its calls are in ``go.calls``."""
    return executable(directory / "go", GO.replace("FAKE_BUILD", build))


def calls(directory):
    file = directory / "go.calls"
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


WITHOUT_GO = {"PATH": "", "PIP_NO_INDEX": "1"}
"""Variables of a machine without Go, whose pip reaches no index."""


def offline(path, **more):
    return {"PATH": str(path), "TRN_OFFLINE": "1", **more}


def failure(environment, cache, *bundles, progress=lambda _: None, patience_seconds=0.0):
    with pytest.raises(UnavailableError) as caught:
        provide(*bundles, progress=progress, environment=environment, cache=cache, patience_seconds=patience_seconds)
    return caught.value


def moved(bundle, hosts, **digests):
    """The bundle's programs at other hosts, and images by digest."""

    def at(tool):
        values = {"url": tool.url, "checksums": tool.checksums, "image": tool.image}
        for official, ours in hosts.items():
            values = {name: value.replace(official, ours) for name, value in values.items()}
        return replace(tool, reference=digests.get(tool.name, tool.reference), **values)

    return replace(bundle, tools=tuple(at(tool) for tool in bundle.tools))


def archive(entries):
    """Contents by name; a text is the target of a symbolic link."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as files:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
            else:
                info.size = len(content)
            files.addfile(info, None if isinstance(content, str) else io.BytesIO(content))
    return data.getvalue()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def digest_of(content):
    return f"sha256:{sha256(content)}"


class Server:
    """Serves what is in ``files`` by path, everything else is 404."""

    def __init__(self):
        self.files = {}
        self.asked = []
        self.cut = {}
        """Path to the length that is promised, where less is sent."""
        self.is_silent = False
        """Whether each connection is closed without an answer."""
        server = self

        class Page(Handler):
            protocol_version = "HTTP/1.0"

            def do_GET(self):  # noqa: N802 - the name that the server calls
                server.asked.append(self.path)
                if not server.is_silent:
                    server.answer(self)

        self._running = contextlib.ExitStack()
        self.url = self._running.enter_context(serving(Page))

    def close(self):
        self._running.close()

    def answer(self, request):
        content = self.files.get(request.path)
        self.send(request, 404 if content is None else 200, content or b"")

    def send(self, request, status, content=b"", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request.answer(status, {**named, "Content-Length": self.cut.get(request.path, len(content))}, content)


# --- Images -------------------------------------------------------------------------------------------------------

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@dataclass
class Pushed:
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Digest or tag to media type and content."""

    def image(self, *layers, architecture="amd64"):
        """Adds an image of one platform; its descriptor for an index."""
        self.blobs |= {digest_of(layer): layer for layer in layers}
        content = json.dumps({"layers": [{"digest": digest_of(layer)} for layer in layers]}).encode()
        self.manifests[digest_of(content)] = (MANIFEST, content)
        return {"digest": digest_of(content), "platform": {"os": "linux", "architecture": architecture}}

    def index(self, tag, *images):
        """Adds an image for several platforms under a tag; its digest."""
        content = json.dumps({"manifests": images}).encode()
        self.manifests[digest_of(content)] = self.manifests[tag] = (INDEX, content)
        return digest_of(content)


class Registry(Server):
    """A registry as Docker Hub is: it wants anonymous tokens, and redirects to a store of layers that refuses them."""

    def __init__(self):
        super().__init__()
        self.repositories = {}
        self.token = "t0k3n"
        self.challenge = 'Bearer realm="{url}/token",service="registry.example",scope="repository:{name}:pull"'
        self.answers = {}
        """Part of a path to the status that it is answered with."""
        # Another name, so that redirects lead to another host.
        self.store = f"{self.url.replace('127.0.0.1', 'localhost')}/store"

    def answer(self, request):
        path, authorization = request.path, request.headers.get("Authorization", "")
        *first, kind, reference = path.split("/")
        name = "/".join(first[2:])
        pushed = self.repositories.get(name, Pushed())
        if status := next((status for part, status in self.answers.items() if part in path), 0):
            self.send(request, status)
        elif path.startswith("/token?"):
            told = urllib.parse.parse_qs(path.partition("?")[2])
            right = told["service"] == ["registry.example"] and told["scope"][0].endswith(":pull")
            self.send(request, 200 if right else 400, json.dumps({"token": self.token}).encode())
        elif kind == "store":
            # As a store whose addresses are signed does.
            held = next((each.blobs[reference] for each in self.repositories.values() if reference in each.blobs), b"")
            self.send(request, 400 if authorization else 200, held)
        elif authorization != "Bearer t0k3n":
            self.send(request, 401, WWW_Authenticate=self.challenge.format(url=self.url, name=name))
        elif kind == "blobs" and reference in pushed.blobs:
            self.send(request, 307, Location=f"{self.store}/{reference}")
        elif kind == "manifests" and reference in pushed.manifests:
            media_type, content = pushed.manifests[reference]
            acceptable = media_type in request.headers.get("Accept", "")
            self.send(request, 200 if acceptable else 406, content, Content_Type=media_type)
        else:
            self.send(request, 404)
