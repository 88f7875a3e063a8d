"""What has to be built for a container's root, and where requests to the proxy go."""

from pathlib import Path

import pytest

from trainium_eks.local.network.gateway import asked
from trainium_eks.local.runtime.root_files import layout
from trainium_eks.local.spec.plan import Mount


def test_a_mount_that_covers_what_is_there_needs_the_root_alone_and_a_new_one_its_parents(tmp_path: Path) -> None:
    def composed(*targets: str, source: Path = tmp_path) -> tuple[str, ...]:
        return layout([Mount(str(source), target) for target in targets]).composed

    (file := tmp_path / "file").touch()
    assert composed("/usr") == composed("/data") == composed("/etc", source=file) == ("/",)
    assert composed("/etc/no-such/deep") == ("/", "/etc", "/etc/no-such")
    assert composed("/etc/no-such.conf", source=file) == ("/", "/etc")
    assert composed("/data", "/data/inner/deep") == ("/",), "in another mount nothing is needed of the machine"
    # The kernel would follow a link, to a file outside of the root that is being built.
    (tmp_path / "resolv.conf").symlink_to("/run/resolv.conf")
    assert str(tmp_path) in composed(str(tmp_path / "resolv.conf"), source=file)


def test_links_of_the_machine_are_followed_and_parents_come_before_what_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    targets = ["/a/b", "/a", "/a/b/c", str(tmp_path / "link" / "x")]
    made = [each.target for each in layout([Mount(str(tmp_path), target) for target in targets]).mounts]
    assert [each for each in made if each.startswith("/a")] == ["/a", "/a/b", "/a/b/c"]
    assert str(tmp_path / "there" / "x") in made


@pytest.mark.parametrize(
    ("line", "place", "first"),
    [
        ("CONNECT pypi.org:443 HTTP/1.1", ("pypi.org", 443), ""),
        ("CONNECT [::1]:443 HTTP/1.1", ("::1", 443), ""),
        ("GET http://h/a?b=c HTTP/1.1", ("h", 80), "GET /a?b=c HTTP/1.1"),
        ("GET http://h:81 HTTP/1.1", ("h", 81), "GET / HTTP/1.1"),
    ],
)
def test_a_request_to_the_proxy_says_where_it_goes(line: str, place: tuple[str, int], first: str) -> None:
    head = f"{line}\r\nHost: h\r\nProxy-Connection: keep-alive\r\nConnection: keep-alive\r\n\r\n".encode()
    host, port, sent = asked(head)
    assert (host, port) == place
    assert sent.decode() == (f"{first}\r\nConnection: close\r\nHost: h\r\n\r\n" if first else "")


@pytest.mark.parametrize("line", ["GET / HTTP/1.1", "GET https://h/ HTTP/1.1", "nonsense", "CONNECT h HTTP/1.1"])
def test_what_is_no_request_to_a_proxy_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        asked(f"{line}\r\n\r\n".encode())
