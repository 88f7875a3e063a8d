"""Tools, a Go and servers that stand in for the real ones when the toolchain is tested."""

import hashlib
import io
import socket
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

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


def tool_text(answer: str) -> bytes:
    return f"#!/bin/sh\necho '{answer}'\n".encode()


def executable(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o755)
    return path


def tools(directory: Path, **answers: str) -> None:
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
list)
    for n in 1 2 3; do echo "go: downloading example.org/module$n v1.0.$n" >&2; done
    printf 'fmt\nexample.org/module1\nexample.org/module2\nexample.org/main\n'
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
        volcano.sh/*) made=${package##*/} answer='Version: v1.15.0' ;;
        github.com/kubeflow/*) made=training-operator.v1 answer=none ;;
        sigs.k8s.io/karpenter/*) made=kwok answer=none ;;
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


def go(directory: Path, build: str = ":") -> Path:
    """A Go that makes tools which answer right, after the given shell commands. Its calls are in ``go.calls``."""
    return executable(directory / "go", GO.replace("FAKE_BUILD", build))


def calls(directory: Path) -> list[str]:
    """What the Go in that directory was called for."""
    file = directory / "go.calls"
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def archive(member: str, content: bytes) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as files:
        info = tarfile.TarInfo(member)
        info.size = len(content)
        files.addfile(info, io.BytesIO(content))
    return data.getvalue()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Server:
    """Serves what is in ``files`` by path, everything else is 404."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                content = server.files.get(self.path)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@contextmanager
def hanging_up() -> Iterator[tuple[str, list[str]]]:
    """A server that closes every connection without an answer: its URL, and one entry for each connection."""
    connections: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, peer = listener.accept()
                except OSError:
                    return
                connections.append(str(peer))
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", connections
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def breaking_off() -> Iterator[str]:
    """A server of one file, helm's, that it never sends whole: its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            content = f"{'0' * 64}  {name.removesuffix('.sha256sum')}".encode()
            whole = name.endswith(".sha256sum")
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)) if whole else "5000")
            self.end_headers()
            self.wfile.write(content if whole else b"0" * 100)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
