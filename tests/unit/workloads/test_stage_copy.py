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
from outcome import raising
from staging_servers import content_of
from trainium_workloads.stage import here, web
from trainium_workloads.stage.destination import Destination
from trainium_workloads.stage.files import CopyInterruptedError, File
from trainium_workloads.stage.here import Here
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


def test_files_of_a_directory_are_fetched_at_once_and_verified(folder, stage, tmp_path, monkeypatch):
    files = {f"part/{index}.bin": random_bytes(40_000 + index, index) for index in range(8)}
    together, fetch = threading.Barrier(4), Here.fetch

    def fetch_together(*arguments):
        together.wait(SECONDS)
        return fetch(*arguments)

    monkeypatch.setattr(Here, "fetch", fetch_together)
    ended = stage(folder(files), "--workers", "4")
    assert (ended.code, content_of(tmp_path / "set")) == (0, files)
    assert "no checksum" not in ended.message
    manifest = [json.loads(line) for line in (tmp_path / "set/.stage-files.jsonl").read_text().splitlines()]
    sums = {line["path"]: line["checksum"] for line in manifest}
    assert sums == {path: f"sha256:{hashlib.sha256(content).hexdigest()}" for path, content in files.items()}


def test_include_and_exclude_select_files(folder, stage, tmp_path):
    (tmp_path / "set").mkdir()
    url = folder({"a.txt": b"a", "b.txt": b"b", "c.bin": b"c"})
    assert stage(url, "--include", "*.txt", "--exclude", "b*").code == 0
    assert content_of(tmp_path / "set") == {"a.txt": b"a"}
    ended = stage(url, "--include", "*.png", to="none")
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


def test_wrong_bytes_end_the_copy_and_never_appear(folder, stage, tmp_path, monkeypatch):
    url = folder({"set.bin": CONTENT})
    with monkeypatch.context() as patch:
        patch.setattr(here.shutil, "copyfile", lambda _, to: Path(to).write_bytes(CONTENT[:-1] + b"?"))
        ended = stage(url)
    assert (ended.code, ended.stage, (tmp_path / "set").exists()) == (1, "failed", False)
    said = r"came with wrong bytes: its checksum is sha256:\w{64}, and should be sha256:\w{64}"
    assert re.search(said, ended.message)
    with monkeypatch.context() as patch:
        patch.setattr(here.shutil, "copyfile", lambda _, to: Path(to).write_bytes(CONTENT[:-1]))
        assert f"it has {len(CONTENT) - 1:,} bytes, and should have {len(CONTENT):,}" in stage(url).message
    ended = stage(url)
    assert (ended.code, ended.bytes, content_of(tmp_path / "set")) == (0, len(CONTENT), {"set.bin": CONTENT})


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


def test_file_damaged_between_attempts_is_fetched_again(folder, stage, tmp_path, monkeypatch):
    files = {"a.bin": random_bytes(2000), "b.bin": random_bytes(1000)}  # the larger comes first
    url, fetch = folder(files), Here.fetch

    def fetch_first(source, file, part):
        if file.path == "b.bin":
            raise CopyInterruptedError("broken off")
        return fetch(source, file, part)

    with monkeypatch.context() as patch:
        patch.setattr(Here, "fetch", fetch_first)
        assert stage(url, "--workers", "1").code == 75
    (tmp_path / ".stage-set/files/a.bin").write_bytes(b"short")
    (tmp_path / ".stage-set/files/stray.bin").write_bytes(b"of nobody")
    assert stage(url).code == 0
    assert content_of(tmp_path / "set") == files


def test_oversized_copy_is_refused_and_a_full_disk_is_reported(server, stage, monkeypatch):
    server.files["/set.bin"] = random_bytes(2 * CHUNK)
    monkeypatch.setattr(Destination, "free_bytes", lambda _: 66 * 1024 * 1024 - 1)
    ended = stage(f"{server.url}/set.bin")
    said = "2,097,152 bytes are to be written, and the file system of .* takes 2,097,151 more"
    assert (ended.code, server.asked["/set.bin"]) == (1, 0)
    assert re.fullmatch(said, ended.message)

    monkeypatch.setattr(web.Web, "fetch", raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    server.files["/set.bin"] = b"1"
    ended = stage(f"{server.url}/set.bin")
    assert (ended.code, "No space left on device; " in ended.message) == (1, True)


@pytest.mark.parametrize(
    ("source", "to", "said"),
    [
        ("{}/none.bin", "set", "{}/none.bin: 404"),
        ("ftp://host/set.bin", "set", "'ftp://host/set.bin' is not a source: it "),
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
def test_path_outside_the_destination_is_refused(folder, stage, tmp_path, monkeypatch, path):
    monkeypatch.setattr(Here, "list_files", lambda _: [File(path, str(tmp_path / "from/x"), 1)])
    ended = stage(folder({"x": b"x"}))
    assert (ended.code, ended.stage, "names a file" in ended.message) == (1, "failed", True)
    assert not list(tmp_path.rglob("out"))


def test_file_and_directory_of_one_name_are_refused(stage, monkeypatch):
    # As keys of S3 may be.
    monkeypatch.setattr(Here, "list_files", lambda _: [File("a", "/a", 1), File("a/b", "/a/b", 1)])
    ended = stage("file:///x")
    assert (ended.code, "has both a file 'a' and files below it" in ended.message) == (1, True)


def test_second_run_copies_nothing_and_notices_missing_files(folder, stage, tmp_path, monkeypatch):
    url = folder({"a": b"1", "b": b"2"})
    assert stage(url).code == 0
    with monkeypatch.context() as patch:
        patch.delattr(Here, "fetch")
        ended = stage(url, to=str(tmp_path / "set"))
    assert (ended.code, ended.stage, "was complete already" in ended.message) == (0, "unchanged", True)
    assert not (tmp_path / ".stage-set").exists()
    (tmp_path / "set/a").unlink()
    ended = stage(url)
    assert (ended.code, "but a is missing: --replace" in ended.message) == (1, True)
    assert stage(url, "--replace").code == 0
    assert content_of(tmp_path / "set") == {"a": b"1", "b": b"2"}


def test_staged_set_of_another_source_is_not_reused(server, stage, tmp_path):
    one = f"{server.url}/one"
    server.files |= {"/one": b"1", "/other": b"2"}
    assert stage(one).code == 0
    ended = stage(f"{server.url}/other")
    assert (ended.code, f'{{"source": "{one}"' in ended.message) == (1, True)
    assert stage(f"{server.url}/other", "--replace").code == 0
    assert content_of(tmp_path / "set") == {"other": b"2"}


def test_users_files_are_never_replaced(folder, stage, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/mine").write_text("precious")
    url = folder({"a": b"1"})
    for options in ([], ["--replace"]):
        ended = stage(url, *options)
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
        assert re.search("deep/x (is a link out of .* to /etc|of .* is not a regular file)", ended.message)
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
    pool = web.Web("https://host.example/x")._pool
    assert (pool.proxy.host, pool.proxy.port) == ("proxy.example", 3128)


def start(root, *arguments):
    command = [sys.executable, "-m", "trainium_workloads.stage", *arguments, "--to", "set", "--root", str(root)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)


FORKS = """
import os, signal, sys, time
from trainium_workloads.stage import copying, destination, here, web
from trainium_workloads.stage.__main__ import main
for line in sys.stdin:
    source, to, seconds = line.split()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(main([source, "--to", to, "--root", sys.argv[1], "--workers", "4"]))
    time.sleep(float(seconds))
    os.kill(child, signal.SIGKILL)
    print(os.waitpid(child, 0)[1], flush=True)
"""
"""Copies in forks of a Python without threads, each killed after its time: a new Python takes longer to start."""


def test_copy_killed_at_any_of_fifty_moments_resumes(server, folder, tmp_path):
    files = {f"{index}.bin": random_bytes(150_000 + 1_300_000 * (index % 4 == 0), index) for index in range(12)}
    server.files["/0.bin"] = files["0.bin"]
    server.seconds_a_piece = 0.001
    sources = [(folder(files), files), (f"{server.url}/0.bin", {"0.bin": files["0.bin"]})]
    chance = random.Random(7)
    kills = number = 0
    command = [sys.executable, "-c", FORKS, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(command, env=ENVIRONMENT, **pipes) as forks:
        while kills < 50:
            source, wanted = sources[number % 2]
            to, status, attempt, number = f"set{number}", -1, 0, number + 1
            while status:
                attempt += 1
                forks.stdin.write(f"{source} {to} {chance.random() * 0.04 + 0.006 * attempt}\n")
                status = int(forks.stdout.readline())
                kills += status != 0
                assert status in (0, signal.SIGKILL)
                assert not (tmp_path / to).exists() or content_of(tmp_path / to) == wanted
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
