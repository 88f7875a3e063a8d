"""LustreVolumes: every namespace mounts the file system, and finds its directories there."""

import os
import stat
import subprocess

import pytest

from components.lustre_volumes import SETUP_SCRIPT

# The script itself, on a directory of this machine. Only root may give directories away.
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving directories to another user takes root")


def set_up(root, *teams):
    subprocess.run(["/bin/sh", "-c", SETUP_SCRIPT, "directories", str(root), *teams], check=True)


def seen(path):
    found = path.lstat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


@needs_root
def test_script_makes_each_teams_directories_including_linked_ones(tmp_path):
    root = tmp_path / "linked" / "here"
    (root / "training" / "data").mkdir(parents=True)
    (tmp_path / "linked").chmod(0o700)
    set_up(root, "training=1000", "vision=2000")
    set_up(tmp_path / "made", "training=1000", "vision=2000")
    for place in (root, tmp_path / "made"):
        for directory in ("", "data", "ckpt", "cache"):
            assert seen(place / "training" / directory) == (1000, 1000, 0o2770)
            assert seen(place / "vision" / directory) == (2000, 2000, 0o2770)
    assert seen(tmp_path / "linked") == seen(tmp_path / "made") == (0, 0, 0o700)


@needs_root
def test_second_setup_keeps_a_teams_changes_and_follows_no_links(tmp_path):
    set_up(tmp_path, "training=1000")
    team, victim = tmp_path / "training", tmp_path / "victim"
    (team / "data" / "set.bin").write_text("x")
    (team / "data").chmod(0o2750)
    victim.mkdir(mode=0o700)
    for name, target in (("ckpt", victim), ("cache", tmp_path / "nowhere")):
        (team / name).rmdir()
        (team / name).symlink_to(target)
    set_up(tmp_path, "training=1000")
    assert seen(team / "data") == (1000, 1000, 0o2750)
    assert (team / "data" / "set.bin").read_text() == "x"
    assert seen(victim) == (0, 0, 0o700)
