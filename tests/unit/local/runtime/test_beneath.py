"""A container's root, and paths in a volume, whatever links the volume's jobs put there, before and meanwhile."""

import ctypes
import errno
import os
import threading

import pytest

from trainium_eks.local import linux
from trainium_eks.local.runtime import beneath
from trainium_eks.local.runtime.root_files import layout
from trainium_eks.local.spec.plan import Mount


@pytest.fixture(params=["openat2", "walk"])
def way(request, monkeypatch):
    """The kernel's call, and what is done without it."""
    if request.param == "walk":

        def missing(*_):
            raise OSError(errno.ENOSYS, "no such call")

        monkeypatch.setattr(linux, "open_in", missing)
    elif not linux.AVAILABLE:
        pytest.skip("not on this machine")
    return str(request.param)


@pytest.fixture
def volume(tmp_path):
    """A volume, and beside it a directory that is not of it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (tmp_path / "volume" / "inside").mkdir(parents=True)
    return tmp_path / "volume"


def where(descriptor):
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("link", ["../outside", "{outside}", "inside/../../outside", "/proc/self/cwd", "/"])
@pytest.mark.parametrize("below", ["link", "link/secret", "link/new/deep"])
def test_symlink_cannot_lead_out_of_the_volume(way, volume, link, below):
    outside = volume.parent / "outside"
    (volume / "link").symlink_to(link.format(outside=outside))
    for open_ in (beneath.opened, beneath.open_or_create):
        with pytest.raises(OSError, match="leads out of it"):
            open_(volume, below)
    assert [each.name for each in outside.iterdir()] == ["secret"]
    assert beneath.real_path(volume, below) is None


def test_missing_path_is_created_and_a_dangling_link_is_not_followed(way, volume):
    assert where(beneath.open_or_create(volume, "/a/./b//c")) == str(volume / "a/b/c")
    assert where(beneath.open_or_create(volume, "a/b/file", is_file=True)) == str(volume / "a/b/file")
    assert (volume / "a/b/file").is_file()
    assert where(beneath.open_or_create(volume, "a/b/c")) == str(volume / "a/b/c")
    (volume / "link").symlink_to("nothing")
    with pytest.raises(OSError, match=r"No such file|leads out"):
        beneath.open_or_create(volume, "link")
    assert not (volume / "nothing").exists()


def test_links_resolve_and_absolute_ones_start_at_the_root(volume):
    if not linux.AVAILABLE:
        pytest.skip("without openat2 no link is followed")
    inside = volume / "inside"
    for name, target in (("link", "inside"), ("root", "/inside"), ("up", "../../../../../inside")):
        (volume / name).symlink_to(target)
    assert where(beneath.open_or_create(volume, "link/new")) == str(inside / "new")
    assert beneath.real_path(volume, "link") == inside
    for link in ("root", "up"):
        made = beneath.open_or_create(volume, f"{link}/file", is_file=True, links_in_root=True)
        assert where(made) == str(inside / "file")


@pytest.fixture
def swapped(volume):
    """A name in the volume that is a directory and a link to the outside in turn, as fast as it can be."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        pytest.skip("this machine cannot exchange two names")
    (volume / "it").mkdir()
    (volume / "evil").symlink_to("../outside")
    ended = threading.Event()

    def swap():
        while not ended.is_set():
            rename(-1, os.fsencode(volume / "it"), -1, os.fsencode(volume / "evil"), 2)  # RENAME_EXCHANGE

    thread = threading.Thread(target=swap)
    thread.start()
    yield "it"
    ended.set()
    thread.join()


def test_symlink_race_cannot_leave_volume(way, volume, swapped):
    found = {"": 0}
    for _ in range(2000):
        try:
            place = (
                where(beneath.open_or_create(volume, f"{swapped}/new"))
                .removeprefix(f"{volume.parent}/")
                .partition("/")[0]
            )
        except OSError:
            place = ""
        found[place] = found.get(place, 0) + 1
    assert found.keys() == {"", "volume"}, "both kinds were met, and nothing outside"
    assert [each.name for each in (volume.parent / "outside").iterdir()] == ["secret"]


def test_end_of_a_regular_file_is_read_and_a_link_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    assert beneath.end_of(tmp_path / "file", 4) == b"6789"
    assert beneath.end_of(tmp_path / "pipe", 4) == b""
    with pytest.raises(OSError, match="link"):
        beneath.end_of(tmp_path / "link", 4)


def test_mount_over_an_existing_path_needs_only_the_root(tmp_path):
    def composed(*targets, source=tmp_path):
        return layout([Mount(str(source), target) for target in targets]).composed

    (file := tmp_path / "file").touch()
    assert composed("/usr") == composed("/data") == composed("/etc", source=file) == ("/",)
    assert composed("/etc/no-such/deep") == ("/", "/etc", "/etc/no-such")
    assert composed("/etc/no-such.conf", source=file) == ("/", "/etc")
    assert composed("/data", "/data/inner/deep") == ("/",), "in another mount nothing is needed of the machine"
    # The kernel would follow a link, to a file outside of the root that is being built.
    (tmp_path / "resolv.conf").symlink_to("/run/resolv.conf")
    assert str(tmp_path) in composed(str(tmp_path / "resolv.conf"), source=file)


def test_machines_links_are_followed_and_parents_are_mounted_first(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    targets = ["/a/b", "/a", "/a/b/c", str(tmp_path / "link" / "x")]
    made = [each.target for each in layout([Mount(str(tmp_path), target) for target in targets]).mounts]
    assert [each for each in made if each.startswith("/a")] == ["/a", "/a/b", "/a/b/c"]
    assert str(tmp_path / "there" / "x") in made
