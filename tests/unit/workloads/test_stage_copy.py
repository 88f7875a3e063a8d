"""A data set is copied whole or not at all: over HTTP, from a server that does all that servers do."""

import errno
import hashlib
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from staging_servers import content_of
from trainium_workloads.stage import web
from trainium_workloads.stage.destination import Destination
from waiting import SECONDS, until

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "workloads")}
CHUNK = 1024 * 1024  # of the command line's unit


def random_bytes(size, seed=0):
    return random.Random(seed).randbytes(size)


CONTENT = random_bytes(3 * CHUNK + 17)


def test_destination_appears_complete_with_its_marker(server, stage, tmp_path):
    server.files["/some/set.bin"] = CONTENT
    ended = stage(f"{server.url}/some/set.bin?token=x", to="a/b")
    assert content_of(tmp_path / "a/b") == {"set.bin": CONTENT}
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".stage-b.lock", "b"]
    assert (ended.code, ended.stage, ended.bytes, ended.files) == (0, "complete", len(CONTENT), 1)
    assert "of 1 the source tells no checksum" in ended.message
    marker = json.loads((tmp_path / "a/b/.stage.json").read_text())
    assert (marker["files"], marker["bytes"], marker["unverified"]) == (1, len(CONTENT), 1)
    assert marker["source"] == f"{server.url}/some/set.bin?token=x"


def test_listed_files_are_fetched_in_parallel_and_verified(server, stage, tmp_path):
    files = {f"part/{index}.bin": random_bytes(40_000 + index, index) for index in range(20)}
    server.seconds_a_piece = 0.005
    ended = stage(server.list_of(files), "--list")
    assert (ended.code, content_of(tmp_path / "set")) == (0, files)
    assert server.most_at_once > 4
    assert "no checksum" not in ended.message
    manifest = [json.loads(line) for line in (tmp_path / "set/.stage-files.jsonl").read_text().splitlines()]
    sums = {line["path"]: line["checksum"] for line in manifest}
    assert sums == {path: f"sha256:{hashlib.sha256(content).hexdigest()}" for path, content in files.items()}


def test_json_list_sets_each_files_destination(server, stage, tmp_path):
    server.files |= {"/x/1": b"one", "/x/2": b"two"}
    entries = [{"url": "x/1", "path": "deep/one.txt", "size": 3}, {"url": f"{server.url}/x/2"}]
    server.files["/list.json"] = json.dumps(entries).encode()
    assert stage(f"{server.url}/list.json", "--list").code == 0
    assert content_of(tmp_path / "set") == {"2": b"two", "deep/one.txt": b"one"}


def test_include_and_exclude_select_files(server, stage, tmp_path):
    (tmp_path / "set").mkdir()
    url = server.list_of({"a.txt": b"a", "b.txt": b"b", "c.bin": b"c"})
    assert stage(url, "--list", "--include", "*.txt", "--exclude", "b*").code == 0
    assert content_of(tmp_path / "set") == {"a.txt": b"a"}
    ended = stage(url, "--list", "--include", "*.png", to="none")
    assert (ended.code, ended.message) == (1, f"of the 3 files of {url}, --include and --exclude choose none")


@pytest.mark.parametrize(
    ("faults", "twice"),
    [
        ({"breaks_after": lambda _, number: 300_000 if number < 9 else None}, 200_000),  # what was on its way
        ({"status": lambda _, number: 503 if number < 3 else 200}, 0),
        ({"ranges": False, "breaks_after": lambda _, number: 100_000 if number < 4 else None}, math.inf),
        ({"ranges": False, "lengths": False}, 0),
    ],
    ids=["breaks", "busy", "without ranges", "without ranges and length"],
)
def test_server_errors_are_retried_without_loss(server, stage, tmp_path, faults, twice):
    server.files["/set.bin"] = CONTENT
    vars(server).update(faults)
    ended = stage(f"{server.url}/set.bin")
    assert (ended.code, content_of(tmp_path / "set")) == (0, {"set.bin": CONTENT})
    assert (server.sent_bytes <= len(CONTENT) + twice, "wrong bytes" in str(ended.lines)) == (True, False)


def test_wrong_bytes_are_fetched_again_and_never_published(server, stage, tmp_path):
    url = server.list_of({"set.bin": CONTENT})
    server.spoils = lambda path, _: path == "/set.bin"
    ended = stage(url, "--list")
    assert (ended.code, ended.stage, (tmp_path / "set").exists()) == (1, "failed", False)
    said = r"came twice with wrong bytes: its checksum is sha256:\w{64}, and should be sha256:\w{64}"
    assert re.search(said, ended.message)
    server.asked.clear()
    server.spoils = lambda path, number: path == "/set.bin" and number == 0
    ended = stage(url, "--list")
    assert (ended.code, ended.bytes, content_of(tmp_path / "set")) == (0, len(CONTENT), {"set.bin": CONTENT})
    assert any("wrong bytes" in line.get("message", "") for line in ended.lines)


def test_file_changed_during_the_copy_is_not_mixed(server, stage, tmp_path):
    old, new = random_bytes(3 * CHUNK, 1), random_bytes(3 * CHUNK, 2)
    server.files["/set.bin"] = old

    def change(_, number):
        if number == 0:
            server.files["/set.bin"] = new
        return 200

    server.status = change
    ended = stage(f"{server.url}/set.bin", "--workers", "1")
    assert (ended.code, "changed after it was listed" in ended.message) == (75, True)
    assert stage(f"{server.url}/set.bin").code == 0
    assert content_of(tmp_path / "set") == {"set.bin": new}


def test_interrupted_download_resumes_later(server, stage, tmp_path):
    server.files["/set.bin"] = CONTENT
    server.breaks_after = lambda *_: 2 * CHUNK
    server.status = lambda _, number: 200 if number < 1 else 503
    ended = stage(f"{server.url}/set.bin", "--workers", "1")
    assert (ended.code, ended.stage) == (75, "interrupted")
    server.status, server.breaks_after, server.sent_bytes = lambda *_: 200, lambda *_: None, 0
    assert stage(f"{server.url}/set.bin").code == 0
    assert content_of(tmp_path / "set") == {"set.bin": CONTENT}
    assert server.sent_bytes == len(CONTENT) - 2 * CHUNK


def test_file_damaged_between_attempts_is_fetched_again(server, stage, tmp_path):
    files = {"a.bin": random_bytes(2000), "b.bin": random_bytes(1000)}  # the larger comes first
    url = server.list_of(files)
    server.status = lambda path, _: 503 if path == "/b.bin" else 200
    assert stage(url, "--list", "--workers", "1").code == 75
    (tmp_path / ".stage-set/files/a.bin").write_bytes(b"short")
    (tmp_path / ".stage-set/files/stray.bin").write_bytes(b"of nobody")
    server.status = lambda *_: 200
    assert stage(url, "--list").code == 0
    assert content_of(tmp_path / "set") == files


def test_oversized_copy_is_refused_and_a_full_disk_is_reported(server, stage, monkeypatch):
    server.files["/set.bin"] = random_bytes(2 * CHUNK)
    monkeypatch.setattr(Destination, "free_bytes", lambda _: 66 * 1024 * 1024 - 1)
    ended = stage(f"{server.url}/set.bin")
    said = "2,097,152 bytes are to be written, and the file system of .* takes 2,097,151 more"
    assert (ended.code, server.asked["/set.bin"]) == (1, 0)
    assert re.fullmatch(said, ended.message)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(web.Web, "fetch", full)
    ended = stage(server.list_of({"a": b"1"}), "--list")
    assert (ended.code, "No space left on device; " in ended.message) == (1, True)


@pytest.mark.parametrize(
    ("source", "to", "said"),
    [
        ("{}/none.bin", "set", "{}/none.bin: 404"),
        ("ftp://host/set.bin", "set", "'ftp://host/set.bin' is no source: it "),
        *(("{}/x", to, "must be a directory below") for to in ("..", "/", ".", "../set", "/etc/set", ".stage-x")),
        ("{}/x", "link/set", "leads out of"),
    ],
)
def test_invalid_source_or_destination_is_refused(server, stage, tmp_path, source, to, said):
    server.files["/x"] = b"x"
    (tmp_path / "link").symlink_to("/tmp")
    ended = stage(source.format(server.url), to=to)
    assert (ended.code, said.format(server.url) in ended.message) == (1, True), ended
    assert {path.name for path in tmp_path.iterdir()} <= {"link", ".stage-set.lock"}


@pytest.mark.parametrize("path", ["../out", "/etc/x", "a/../../out", ".stage.json", "a\nb", "a//b"])
def test_listed_path_outside_the_destination_is_refused(server, stage, tmp_path, path):
    server.files |= {"/x": b"x", "/list.json": json.dumps([{"url": "x", "path": path}]).encode()}
    ended = stage(f"{server.url}/list.json", "--list")
    assert (ended.code, ended.stage, "names a file" in ended.message) == (1, "failed", True)
    assert not list(tmp_path.rglob("out"))


def test_file_and_directory_with_one_name_are_refused(server, stage):
    ended = stage(server.list_of({"a": b"1", "a/b": b"2"}), "--list")
    assert (ended.code, "has both a file 'a' and files below it" in ended.message) == (1, True)


def test_second_run_copies_nothing_and_notices_missing_files(server, stage, tmp_path):
    url = server.list_of({"a": b"1", "b": b"2"})
    assert stage(url, "--list").code == 0
    asked = server.asked.total()
    ended = stage(url, "--list", to=str(tmp_path / "set"))
    assert (ended.code, ended.stage, "was complete already" in ended.message) == (0, "unchanged", True)
    assert (server.asked.total(), (tmp_path / ".stage-set").exists()) == (asked, False)
    (tmp_path / "set/a").unlink()
    ended = stage(url, "--list")
    assert (ended.code, "but a has gone: --replace" in ended.message) == (1, True)
    assert stage(url, "--list", "--replace").code == 0
    assert content_of(tmp_path / "set") == {"a": b"1", "b": b"2"}


def test_staged_set_of_another_source_is_not_reused(server, stage, tmp_path):
    one = server.list_of({"a": b"1"})
    server.files["/other"] = b"2"
    assert stage(one, "--list").code == 0
    ended = stage(f"{server.url}/other")
    assert (ended.code, f'{{"source": "{one}"' in ended.message) == (1, True)
    assert stage(f"{server.url}/other", "--replace").code == 0
    assert content_of(tmp_path / "set") == {"other": b"2"}


def test_users_files_are_never_replaced(server, stage, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/mine").write_text("precious")
    url = server.list_of({"a": b"1"})
    for options in ([], ["--replace"]):
        ended = stage(url, "--list", *options)
        assert (ended.code, "not staged" in ended.message) == (1, True)
    assert content_of(tmp_path / "set") == {"mine": b"precious"}


def test_partial_copy_of_another_source_is_discarded(server, stage, tmp_path):
    server.files |= {"/one": random_bytes(1000), "/two": b"2"}
    server.status = lambda path, _: 404 if path == "/one" else 200
    assert (stage(f"{server.url}/one").code, stage(f"{server.url}/two").code) == (1, 0)
    assert content_of(tmp_path / "set") == {"two": b"2"}


def test_local_files_are_copied_without_following_links_out(stage, tmp_path):
    (tmp_path / "from/deep").mkdir(parents=True)
    (tmp_path / "from/deep/a b").write_bytes(b"a")
    (tmp_path / "from/link").symlink_to("deep/a b")
    ended = stage((tmp_path / "from").as_uri())
    assert (ended.code, content_of(tmp_path / "set")) == (0, {"deep/a b": b"a", "link": b"a"})
    assert "no checksum" not in ended.message
    for make in (lambda at: at.symlink_to("/etc/passwd"), lambda at: at.symlink_to("/etc"), os.mkfifo):
        make(tmp_path / "from/deep/x")
        ended = stage((tmp_path / "from").as_uri(), to="other")
        assert (ended.code, (tmp_path / "other").exists()) == (1, False)
        assert re.search("deep/x (is a link out of .* to /etc|of .* is no regular file)", ended.message)
        (tmp_path / "from/deep/x").unlink()


def test_proxy_of_the_environment_is_used(server, stage, tmp_path, monkeypatch):
    server.files["/set.bin"] = CONTENT
    # A proxy is asked for a whole URL, and this one answers for every host.
    monkeypatch.setenv("http_proxy", server.url)
    assert stage("http://nowhere.invalid/set.bin").code == 0
    assert content_of(tmp_path / "set") == {"set.bin": CONTENT}
    assert {(path, headers["Host"]) for _, path, headers in server.seen} == {
        ("http://nowhere.invalid/set.bin", "nowhere.invalid")
    }
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server.seen.clear()
    assert stage(f"{server.url}/set.bin", to="direct").code == 0
    assert {path for _, path, _ in server.seen} == {"/set.bin"}
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    pool = web.Web("https://host.example/x", 1, is_list=False)._pool
    assert (pool.proxy.host, pool.proxy.port) == ("proxy.example", 3128)


def start(root, *arguments):
    command = [sys.executable, "-m", "trainium_workloads.stage", *arguments, "--to", "set", "--root", str(root)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)


FORKS = """
import os, signal, sys, time
from trainium_workloads.stage import copying, destination, web
from trainium_workloads.stage.__main__ import main
for line in sys.stdin:
    to, seconds = line.split()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(main([sys.argv[1], "--list", "--to", to, "--root", sys.argv[2], "--workers", "4"]))
    time.sleep(float(seconds))
    os.kill(child, signal.SIGKILL)
    print(os.waitpid(child, 0)[1], flush=True)
"""
"""Copies in forks of a Python without threads, each killed after its time: a new Python takes longer to start."""


def test_copy_killed_at_any_of_fifty_moments_resumes_to_the_same_content(server, tmp_path):
    files = {f"{index}.bin": random_bytes(150_000 + 1_300_000 * (index % 4 == 0), index) for index in range(12)}
    url = server.list_of(files)
    server.seconds_a_piece = 0.002
    chance = random.Random(7)
    kills = 0
    command = [sys.executable, "-c", FORKS, url, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(command, env=ENVIRONMENT, **pipes) as forks:
        number = 0
        while kills < 50:
            to, status, attempt, number = f"set{number}", -1, 0, number + 1
            while status:
                attempt += 1
                forks.stdin.write(f"{to} {chance.random() * 0.06 + 0.006 * attempt}\n")
                status = int(forks.stdout.readline())
                kills += status != 0
                assert status in (0, signal.SIGKILL)
                assert not (tmp_path / to).exists() or content_of(tmp_path / to) == files
            assert sorted(path.name for path in tmp_path.glob(f"*{to}*")) == [f".stage-{to}.lock", to]
        forks.stdin.close()


def test_sigterm_ends_the_copy_at_once(server, tmp_path):
    server.files["/set.bin"] = random_bytes(4 * CHUNK)
    server.seconds_a_piece = 1.0
    process = start(tmp_path, f"{server.url}/set.bin")
    until(lambda: server.asked["/set.bin"])
    process.terminate()
    out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 143
    assert json.loads(out.splitlines()[-1])["stage"] == "interrupted"


def test_second_concurrent_copy_finds_the_first_complete(server, tmp_path):
    server.files["/set.bin"] = random_bytes(3 * CHUNK)
    goes_on = threading.Event()

    server.status = lambda *_: 200 if goes_on.wait(SECONDS) else 503
    writes = start(tmp_path, f"{server.url}/set.bin")
    until(lambda: server.asked["/set.bin"])
    waits = start(tmp_path, f"{server.url}/set.bin")
    assert any("is being written by" in line for line in iter(waits.stdout.readline, ""))
    goes_on.set()
    last = [process.communicate(timeout=SECONDS)[0].splitlines()[-1] for process in (writes, waits)]
    assert [process.returncode for process in (writes, waits)] == [0, 0]
    assert [json.loads(line)["stage"] for line in last] == ["complete", "unchanged"]
    assert server.sent_bytes == 3 * CHUNK


def test_directory_deleted_during_counting_is_ignored(tmp_path):
    counted, ended = SimpleNamespace(_parts=tmp_path), threading.Event()

    def come_and_go():
        while not ended.is_set():
            (tmp_path / "x.hub" / "notes").mkdir(parents=True)
            shutil.rmtree(tmp_path / "x.hub")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        assert {Destination.part_bytes(counted) for _ in range(1000)} == {0}
    finally:
        ended.set()
        thread.join()
