"""What has to be built for a container's root, and where requests to the proxy go."""

from pathlib import Path

import pytest

from trainium_eks.local.network.gateway import asked
from trainium_eks.local.runtime.root_files import layout
from trainium_eks.local.spec.plan import Mount


def composed(*targets: str, source: Path) -> tuple[str, ...]:
    return layout([Mount(str(source), target) for target in targets]).composed


def test_a_directory_of_the_machine_is_covered_and_a_new_one_has_its_parents_composed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert composed("/usr", source=tmp_path) == ("/",)
    assert composed("/data", source=tmp_path) == ("/",)
    assert composed("/etc/no-such/deep", source=tmp_path) == ("/", "/etc", "/etc/no-such")
    assert composed("/etc", source=file) == ("/",)
    assert composed("/etc/no-such.conf", source=file) == ("/", "/etc")


def test_a_mount_in_another_one_needs_nothing_of_the_machine(tmp_path: Path) -> None:
    assert composed("/data", "/data/inner/deep", source=tmp_path) == ("/",)


def test_links_of_the_machine_are_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    (mount,) = layout([Mount("/etc", str(tmp_path / "link" / "x"))]).mounts
    assert mount.target == str(tmp_path / "there" / "x")


def test_a_link_of_the_machine_is_not_mounted_upon(tmp_path: Path) -> None:
    """The kernel would follow it, to a file outside of the root that is being built."""
    (tmp_path / "resolv.conf").symlink_to("/run/resolv.conf")
    file = tmp_path / "file"
    file.touch()
    assert str(tmp_path) in composed(str(tmp_path / "resolv.conf"), source=file)


def test_parents_come_before_what_is_in_them(tmp_path: Path) -> None:
    targets = ["/a/b", "/a", "/a/b/c"]
    made = layout([Mount(str(tmp_path), target) for target in targets]).mounts
    assert [each.target for each in made] == ["/a", "/a/b", "/a/b/c"]


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
