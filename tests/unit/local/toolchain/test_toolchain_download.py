"""Downloads: nothing is used whose checksum is not the published one."""

import resource

import pytest
import toolchain_fakes as fakes

from trainium_eks.local.toolchain import kubernetes, provide
from trainium_eks.local.toolchain.tools import Platform

KUBE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
KUBECTL = "/release/v1.35.4/bin/linux/amd64/kubectl"
HELM = "/helm-v3.19.5-linux-amd64.tar.gz"
ETCD = "/etcd-io/etcd/releases/download/v3.6.5"


@pytest.fixture
def server(monkeypatch):
    """A server with all seven tools, as their projects publish them."""
    monkeypatch.setattr(Platform, "here", staticmethod(lambda: Platform("linux", "amd64")))
    server = fakes.Server()
    for name in KUBE:
        content = fakes.tool_text(fakes.VERSIONS[name])
        path = KUBECTL.replace("kubectl", name)
        server.files |= {path: content, f"{path}.sha256": fakes.sha256(content).encode()}
    etcd = fakes.archive({"etcd-v3.6.5-linux-amd64/etcd": fakes.tool_text(fakes.VERSIONS["etcd"])})
    sums = f"{'0' * 64}  etcd-v3.6.5-darwin-amd64.zip\n{fakes.sha256(etcd)}  etcd-v3.6.5-linux-amd64.tar.gz\n"
    server.files |= {f"{ETCD}/etcd-v3.6.5-linux-amd64.tar.gz": etcd, f"{ETCD}/SHA256SUMS": sums.encode()}
    _publish_helm(server, fakes.archive({"linux-amd64/helm": fakes.tool_text(fakes.VERSIONS["helm"])}))
    yield server
    server.close()


def _publish_helm(server, content):
    server.files |= {HELM: content, f"{HELM}.sha256sum": f"{fakes.sha256(content)}  {HELM[1:]}\n".encode()}


def _image(server):
    """Publish kwok's image; its digest."""
    pushed = fakes.Pushed()
    layer = fakes.archive({"usr/local/bin/kwok": fakes.tool_text(fakes.VERSIONS["kwok"])})
    ours = pushed.image(b"", layer)
    digest = pushed.index("tag", pushed.image(b"", architecture="arm64"), ours)
    server.files |= {f"/v2/kwok/kwok/manifests/{name}": content for name, (_, content) in pushed.manifests.items()}
    server.files[f"/v2/kwok/kwok/blobs/{fakes.digest_of(layer)}"] = layer
    return digest


def at(server, **others):
    """The programs of a local cloud at the server; ``kubernetes="http://…"`` for those of one host elsewhere."""
    [bundle] = kubernetes("1.35")
    hosts = ("https://github.com", "https://get.helm.sh", "https://registry.k8s.io")
    ours = {"https://dl.k8s.io": others.get("kubernetes", server.url), **dict.fromkeys(hosts, server.url)}
    return fakes.moved(bundle, ours, kwok=_image(server))


def failure(bundle, cache, said=None):
    return fakes.failure(fakes.WITHOUT_GO, cache, bundle, progress=([] if said is None else said).append)


def test_everything_published_is_downloaded_checked_and_kept(server, tmp_path):
    bundle = at(server)
    for origin in ("download", "cache"):
        there = provide(bundle, progress=lambda _: None, environment=fakes.WITHOUT_GO, cache=tmp_path)
        assert {binary.origin for binary in there.values()} == {origin}
    assert set(there) == {tool.name for tool in bundle.tools}
    assert len(server.asked) == len(set(server.asked))
    assert there["helm"].path.read_bytes() == fakes.tool_text(fakes.VERSIONS["helm"])


@pytest.mark.parametrize(
    ("tool", "path", "begins"),
    [
        ("kubectl", KUBECTL, b""),
        ("etcd", f"{ETCD}/etcd-v3.6.5-linux-amd64.tar.gz", b""),
        ("helm", HELM, b""),
        ("kwok", "/v2/kwok/kwok/blobs/", b""),
        ("kwok", "/v2/kwok/kwok/manifests/", b'{"layers"'),
        ("kwok", "/v2/kwok/kwok/manifests/", b'{"manifests"'),
    ],
)
def test_download_with_a_wrong_checksum_is_reported_and_not_used(server, tmp_path, tool, path, begins):
    bundle = at(server)
    [found, *_] = [name for name, text in server.files.items() if name.startswith(path) and text.startswith(begins)]
    server.files[found] = fakes.tool_text("another v1.35.4 0.6.1")
    said = []
    error = failure(bundle, tmp_path, said)
    assert set(error.reasons) == {tool}
    assert "download: WRONG CHECKSUM: " in str(error)
    assert any("WRONG CHECKSUM" in line for line in said)
    assert not list(tmp_path.rglob(tool))


def test_undownloadable_tool_is_built_and_the_others_are_downloaded(server, tmp_path):
    del server.files[HELM]
    assert f"download: {server.url}{HELM}: 404 Not Found" in failure(at(server), tmp_path / "cache").reasons["helm"]
    fakes.go(tmp_path / "bin")
    environment = {"PATH": str(tmp_path / "bin")}
    there = provide(at(server), progress=lambda _: None, environment=environment, cache=tmp_path / "another")
    assert (there["helm"].origin, there["kwok"].origin) == ("build", "download")


def test_file_without_checksum_and_archive_without_tool_are_not_used(server, tmp_path):
    server.files[f"{ETCD}/SHA256SUMS"] = b"<html>please log in to this network</html>"
    for content in (fakes.archive({"linux-amd64/README": b""}), b"no archive"):
        _publish_helm(server, content)
        error = str(failure(at(server), tmp_path))
        assert f"{server.url}{ETCD}/SHA256SUMS names no checksum of etcd-v3.6.5-linux-amd64.tar.gz" in error
        assert f"{server.url}{HELM} has no linux-amd64/helm" in error


def test_silent_host_is_asked_once_and_a_short_download_is_reported(server, tmp_path):
    other = fakes.Server()
    other.is_silent = True
    server.files[HELM], server.cut[HELM] = b"0" * 100, 5000
    error = failure(at(server, kubernetes=other.url), tmp_path)
    assert len(other.asked) == 1
    assert set(error.reasons) == {*KUBE, "helm"}
    assert f"download: {other.url.removeprefix('http://')} cannot be reached: " in str(error)
    assert "broke off after 100 of 5000 bytes" in str(error)
    other.close()
    assert "cannot be reached: Connection refused" in str(failure(at(server, kubernetes=other.url), tmp_path))


def test_full_disk_is_reported_and_no_partial_file_is_kept(server, tmp_path):
    server.files[KUBECTL] = b"\0" * 200_000
    bundle = at(server)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        error = failure(bundle, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot be written: File too large; TRN_CACHE names another directory" in str(error)
    left = {file.name for file in tmp_path.rglob("*") if file.is_file()}
    assert left <= {".lock", f"{bundle.place.name}.refused.json"}


def test_official_addresses_exist_only_for_supported_releases(monkeypatch):
    for machine, name in (("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv", "riscv")):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        assert Platform.here().machine == name
    [bundle] = kubernetes("1.35")
    urls = {tool.name: tool.url.format(system="linux", machine="arm64") for tool in bundle.tools}
    assert urls["kube-apiserver"] == "https://dl.k8s.io/release/v1.35.4/bin/linux/arm64/kube-apiserver"
    assert urls["helm"] == "https://get.helm.sh/helm-v3.19.5-linux-arm64.tar.gz"
    assert urls["etcd"] == "https://github.com/etcd-io/etcd/releases/download/v3.6.5/etcd-v3.6.5-linux-arm64.tar.gz"
    for where in (Platform("darwin", "arm64"), Platform("win32", "amd64"), Platform("linux", "riscv")):
        assert {tool.unpublished(where) for tool in bundle.tools} == {f"not published for {where}"}
    control_plane, rest = kubernetes("1.33")
    here = Platform("linux", "arm64")
    assert {tool.unpublished(here) for tool in control_plane.tools} == {"no known release of that Kubernetes"}
    assert {tool.unpublished(here) for tool in rest.tools} == {""}
