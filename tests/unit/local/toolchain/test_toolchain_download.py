"""Downloads: nothing is used whose checksum is not the published one."""

import io
import json
import resource
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import toolchain_fakes as fakes

from trainium_eks.local.toolchain import TOOLS, Origins, Pins, Platform, Unavailable, download, provide, store
from trainium_eks.local.toolchain.registry import Notes

LINUX = Pins("1.35", Platform("linux", "amd64"))
KUBE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")


@pytest.fixture(autouse=True)
def _linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Platform, "here", staticmethod(lambda: LINUX.platform))


@pytest.fixture
def server() -> Iterator[fakes.Server]:
    server = fakes.Server()
    yield server
    server.close()


def published(server: fakes.Server) -> Origins:
    """All seven tools, as their projects publish them."""
    for name in KUBE:
        content = fakes.tool_text(fakes.VERSIONS[name])
        path = f"/k/v1.35.4/bin/linux/amd64/{name}"
        server.files |= {path: content, f"{path}.sha256": fakes.sha256(content).encode()}
    etcd = fakes.archive("etcd-v3.6.5-linux-amd64/etcd", fakes.tool_text(fakes.VERSIONS["etcd"]))
    sums = f"{'0' * 64}  etcd-v3.6.5-darwin-amd64.zip\n{fakes.sha256(etcd)}  etcd-v3.6.5-linux-amd64.tar.gz\n"
    server.files |= {"/e/v3.6.5/etcd-v3.6.5-linux-amd64.tar.gz": etcd, "/e/v3.6.5/SHA256SUMS": sums.encode()}
    helm = fakes.archive("linux-amd64/helm", fakes.tool_text(fakes.VERSIONS["helm"]))
    name = "helm-v3.19.5-linux-amd64.tar.gz"
    server.files |= {f"/h/{name}": helm, f"/h/{name}.sha256sum": f"{fakes.sha256(helm)}  {name}\n".encode()}
    return Origins(
        kubernetes=f"{server.url}/k",
        etcd=f"{server.url}/e",
        helm=f"{server.url}/h",
        images=server.url,
        kwok_image_digest=f"sha256:{_image(server)}",
    )


def _image(server: fakes.Server) -> str:
    layer = fakes.archive("usr/local/bin/kwok", fakes.tool_text(fakes.VERSIONS["kwok"]))
    base = {"digest": "sha256:" + "0" * 64}
    manifest = json.dumps({"layers": [base, {"digest": f"sha256:{fakes.sha256(layer)}"}]}).encode()
    arm = {"digest": "sha256:" + "1" * 64, "platform": {"os": "linux", "architecture": "arm64"}}
    amd = {"digest": f"sha256:{fakes.sha256(manifest)}", "platform": {"os": "linux", "architecture": "amd64"}}
    index = json.dumps({"manifests": [arm, amd]}).encode()
    for content in (manifest, index):
        server.files[f"/v2/kwok/kwok/manifests/sha256:{fakes.sha256(content)}"] = content
    server.files[f"/v2/kwok/kwok/blobs/sha256:{fakes.sha256(layer)}"] = layer
    return fakes.sha256(index)


def failure(origins: Origins, tmp_path: Path) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        provide("1.35", progress=lambda _: None, environment={"PATH": ""}, cache=tmp_path / "cache", origins=origins)
    return caught.value


def test_everything_published_is_downloaded_checked_and_kept(server: fakes.Server, tmp_path: Path) -> None:
    origins = published(server)
    for origin in ("download", "cache"):
        there = provide(
            "1.35", progress=lambda _: None, environment={"PATH": ""}, cache=tmp_path / "cache", origins=origins
        )
        assert {binary.origin for binary in there.values()} == {origin}
    assert tuple(there) == TOOLS
    assert len(server.asked) == len(set(server.asked))
    assert there["helm"].path.read_bytes() == fakes.tool_text(fakes.VERSIONS["helm"])


@pytest.mark.parametrize(
    ("tool", "path"),
    [
        ("kubectl", "/k/v1.35.4/bin/linux/amd64/kubectl"),
        ("etcd", "/e/v3.6.5/etcd-v3.6.5-linux-amd64.tar.gz"),
        ("helm", "/h/helm-v3.19.5-linux-amd64.tar.gz"),
        ("kwok", "/v2/kwok/kwok/blobs/"),
        ("kwok", "/v2/kwok/kwok/manifests/"),
    ],
)
def test_what_has_another_checksum_is_told_and_not_used(
    server: fakes.Server, tmp_path: Path, tool: str, path: str
) -> None:
    origins = published(server)
    [found, *_] = [name for name in server.files if name.startswith(path) and "sha256sum" not in name[-10:]]
    server.files[found] = fakes.tool_text("another v1.35.4 0.6.1")
    said: list[str] = []
    with pytest.raises(Unavailable) as caught:
        provide("1.35", progress=said.append, environment={"PATH": ""}, cache=tmp_path / "cache", origins=origins)
    [reason] = [line for line in caught.value.reasons[tool] if line.startswith("download")]
    assert reason.startswith("download: WRONG CHECKSUM: ")
    assert any("WRONG CHECKSUM" in line for line in said)
    assert set(caught.value.reasons) == {tool}
    assert not list((tmp_path / "cache").rglob(tool))


def test_what_cannot_be_downloaded_is_built(server: fakes.Server, tmp_path: Path) -> None:
    origins = published(server)
    del server.files["/h/helm-v3.19.5-linux-amd64.tar.gz"]
    fakes.go(tmp_path / "bin")
    there = provide(
        "1.35",
        progress=lambda _: None,
        environment={"PATH": str(tmp_path / "bin")},
        cache=tmp_path / "cache",
        origins=origins,
    )
    assert there["helm"].origin == "build"
    assert there["kwok"].origin == "download"


def test_file_that_is_not_there_is_told_and_the_others_are_fetched(server: fakes.Server, tmp_path: Path) -> None:
    origins = published(server)
    del server.files["/k/v1.35.4/bin/linux/amd64/kube-scheduler"]
    error = failure(origins, tmp_path)
    assert set(error.reasons) == {"kube-scheduler"}
    url = f"{server.url}/k/v1.35.4/bin/linux/amd64/kube-scheduler"
    assert f"download: {url}: 404 Not Found" in error.reasons["kube-scheduler"]


def test_file_without_a_published_checksum_is_not_used(server: fakes.Server, tmp_path: Path) -> None:
    origins = published(server)
    server.files["/e/v3.6.5/SHA256SUMS"] = b"<html>please log in to this network</html>"
    error = failure(origins, tmp_path)
    assert f"{server.url}/e/v3.6.5/SHA256SUMS names no checksum of etcd-v3.6.5-linux-amd64.tar.gz" in str(error)


def test_archive_without_the_tool_is_refused(server: fakes.Server, tmp_path: Path) -> None:
    origins = published(server)
    name = "helm-v3.19.5-linux-amd64.tar.gz"
    for content in (fakes.archive("linux-amd64/README", b""), b"no archive"):
        server.files |= {f"/h/{name}": content, f"/h/{name}.sha256sum": f"{fakes.sha256(content)}  {name}".encode()}
        assert f"{server.url}/h/{name} has no linux-amd64/helm" in str(failure(origins, tmp_path))


def test_host_that_does_not_answer_is_asked_once(server: fakes.Server, tmp_path: Path) -> None:
    published(server)
    with fakes.hanging_up() as (url, connections):
        error = failure(Origins(url, f"{server.url}/e", f"{server.url}/h", server.url), tmp_path)
    assert len(connections) == 1
    for tool in KUBE:
        [reason] = [line for line in error.reasons[tool] if line.startswith("download")]
        assert reason.startswith(f"download: {url.removeprefix('http://')} cannot be reached: ")
    assert "etcd" not in error.reasons


def test_unreachable_hosts_are_named(tmp_path: Path) -> None:
    with fakes.hanging_up() as (url, _):
        pass  # nobody listens there any more
    error = failure(Origins(url, url, url, url), tmp_path)
    assert f"{url.removeprefix('http://')} cannot be reached: Connection refused" in str(error)


def test_download_that_breaks_off_is_told(
    server: fakes.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origins = published(server)
    with fakes.breaking_off() as url:
        error = failure(Origins(origins.kubernetes, origins.etcd, url, server.url, origins.kwok_image_digest), tmp_path)
    assert "broke off after 100 of 5000 bytes" in str(error)


def test_offline_asks_nobody(server: fakes.Server, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="not tried, TRN_OFFLINE is set"):
        provide(
            "1.35",
            progress=lambda _: None,
            environment={"PATH": "", "TRN_OFFLINE": "1"},
            cache=tmp_path / "cache",
            origins=published(server),
        )
    assert server.asked == []


def test_disk_that_fills_up_is_told_and_nothing_half_is_kept(server: fakes.Server, tmp_path: Path) -> None:
    origins = published(server)
    path = "/k/v1.35.4/bin/linux/amd64/kubectl"
    server.files[path] = b"\0" * 200_000
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        error = failure(origins, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot be written: File too large; TRN_CACHE names another directory" in str(error)
    assert [file.name for file in (tmp_path / "cache").rglob("*") if file.is_file()] == [".lock"]


def test_mac_has_downloads_of_clients_and_etcd_only() -> None:
    mac = Pins("1.35", Platform("darwin", "arm64"))
    found = {tool: download.source(tool, mac, Origins()) for tool in TOOLS}
    assert {tool for tool, where in found.items() if isinstance(where, str)} == {*KUBE[:3], "kwok"}
    assert found["kube-apiserver"] == "not published for darwin"
    assert found["etcd"] == download.File(
        "https://github.com/etcd-io/etcd/releases/download/v3.6.5/etcd-v3.6.5-darwin-arm64.zip",
        "https://github.com/etcd-io/etcd/releases/download/v3.6.5/SHA256SUMS",
        "etcd-v3.6.5-darwin-arm64/etcd",
    )


def test_zip_of_the_mac_is_unpacked(server: fakes.Server, tmp_path: Path) -> None:
    mac = Pins("1.35", Platform("darwin", "arm64"))
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as files:
        files.writestr("etcd-v3.6.5-darwin-arm64/etcd", "the tool")
    name = "etcd-v3.6.5-darwin-arm64.zip"
    server.files[f"/v3.6.5/{name}"] = data.getvalue()
    server.files["/v3.6.5/SHA256SUMS"] = f"{fakes.sha256(data.getvalue())}  {name}\n".encode()
    files, reasons = download.download(
        ["etcd"], mac, Origins(etcd=server.url), tmp_path, Notes(tmp_path / "n"), lambda _: None
    )
    assert files["etcd"].read_text() == "the tool"
    assert reasons == {}


@pytest.mark.parametrize("platform", [Platform("win32", "amd64"), Platform("linux", "riscv64")])
def test_other_platforms_have_no_downloads(platform: Platform) -> None:
    for tool in TOOLS:
        found = download.source(tool, Pins("1.35", platform), Origins())
        assert found == f"not published for {platform.system}-{platform.architecture}"


def test_kubernetes_without_a_known_release_is_not_downloaded() -> None:
    pins = Pins("1.33", LINUX.platform)
    assert download.source("kubectl", pins, Origins()) == "no known release of Kubernetes 1.33"
    assert isinstance(download.source("etcd", pins, Origins()), download.File)


def test_official_addresses() -> None:
    def url(tool: str) -> str:
        found = download.source(tool, LINUX, Origins())
        assert isinstance(found, download.File)
        return found.url

    assert url("kube-apiserver") == "https://dl.k8s.io/release/v1.35.4/bin/linux/amd64/kube-apiserver"
    assert url("helm") == "https://get.helm.sh/helm-v3.19.5-linux-amd64.tar.gz"
    assert store.SCRATCH.startswith(".")
