"""A data set is copied whole or not at all: over HTTP, from a server that does all that servers do."""

import errno
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from staging_servers import FileServer, file_server
from trainium_workloads.stage import copying, web
from trainium_workloads.stage.__main__ import main
from trainium_workloads.stage.destination import Destination
from waiting import SECONDS, until

WORKLOADS = Path(__file__).parents[3] / "workloads"
CHUNK = 1024 * 1024  # of the command line's unit

Lines = list[dict[str, Any]]


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as stub:
        yield stub


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "pause", no_pause)
    monkeypatch.setattr(web, "_RETRIES", web._RETRIES.new(backoff_factor=0, total=2))


@pytest.fixture
def stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Lines]]:
    """Runs the command in this process; its exit code and lines."""

    def run(source: str, *options: str, to: str = "set") -> tuple[int, Lines]:
        code = main([source, "--to", to, "--root", str(tmp_path), *options])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def no_pause(seconds: float) -> None:
    time.sleep(min(seconds, 0.002))


def random_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def a_list(server: FileServer, files: Mapping[str, bytes]) -> str:
    """Serves the files and their list; the list's URL."""
    server.files |= {f"/{path}": content for path, content in files.items()}
    lines = (f"{hashlib.sha256(content).hexdigest()}  {path}" for path, content in files.items())
    server.files["/SHA256SUMS"] = "\n".join(lines).encode()
    return f"{server.url}/SHA256SUMS"


def content_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith(".stage")
    }


def test_one_file_comes_and_the_destination_appears_whole_with_its_marker(
    server: FileServer, stage: Callable[..., Any], tmp_path: Path
) -> None:
    content = random_bytes(5 * CHUNK + 17)
    server.files["/some/set.bin"] = content
    code, lines = stage(f"{server.url}/some/set.bin?token=x", to="a/b")
    assert code == 0
    assert content_of(tmp_path / "a/b") == {"set.bin": content}
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".stage-b.lock", "b"]
    last = lines[-1]
    assert (last["stage"], last["bytes"], last["files"]) == ("complete", len(content), 1)
    assert "of 1 the source tells no checksum" in last["message"]
    marker = json.loads((tmp_path / "a/b/.stage.json").read_text())
    assert (marker["files"], marker["bytes"], marker["unverified"]) == (1, len(content), 1)
    assert marker["source"] == f"{server.url}/some/set.bin?token=x"


def test_files_of_a_list_come_side_by_side_each_verified(
    server: FileServer, stage: Callable[..., Any], tmp_path: Path
) -> None:
    files = {f"part/{index}.bin": random_bytes(40_000 + index, index) for index in range(20)}
    server.seconds_a_piece = 0.005
    code, lines = stage(a_list(server, files), "--list")
    assert code == 0
    assert content_of(tmp_path / "set") == files
    assert server.most_at_once > 4
    assert "no checksum" not in lines[-1]["message"]
    manifest = [json.loads(line) for line in (tmp_path / "set/.stage-files.jsonl").read_text().splitlines()]
    sums = {line["path"]: line["checksum"] for line in manifest}
    assert sums == {path: f"sha256:{hashlib.sha256(content).hexdigest()}" for path, content in files.items()}


def test_a_list_in_json_says_where_files_go(server: FileServer, stage: Callable[..., Any], tmp_path: Path) -> None:
    server.files |= {"/x/1": b"one", "/x/2": b"two"}
    entries = [{"url": "x/1", "path": "deep/one.txt", "size": 3}, {"url": f"{server.url}/x/2"}]
    server.files["/list.json"] = json.dumps(entries).encode()
    assert stage(f"{server.url}/list.json", "--list")[0] == 0
    assert content_of(tmp_path / "set") == {"2": b"two", "deep/one.txt": b"one"}


def test_include_and_exclude_choose(server: FileServer, stage: Callable[..., Any], tmp_path: Path) -> None:
    url = a_list(server, {"a.txt": b"a", "b.txt": b"b", "c.bin": b"c"})
    assert stage(url, "--list", "--include", "*.txt", "--exclude", "b*")[0] == 0
    assert content_of(tmp_path / "set") == {"a.txt": b"a"}
    code, lines = stage(url, "--list", "--include", "*.png", to="none")
    assert (code, lines[-1]["message"]) == (1, f"of the 3 files of {url}, --include and --exclude choose none")


def test_a_connection_that_breaks_goes_on_where_it_broke(
    server: FileServer, stage: Callable[..., Any], tmp_path: Path
) -> None:
    content = random_bytes(3 * CHUNK)
    server.files["/set.bin"] = content
    server.breaks_after = lambda _, number: 300_000 if number < 9 else None
    assert stage(f"{server.url}/set.bin")[0] == 0
    assert content_of(tmp_path / "set") == {"set.bin": content}
    assert server.sent_bytes < len(content) + 200_000  # nothing twice but what was on its way


def test_a_server_that_is_busy_is_asked_again(server: FileServer, stage: Callable[..., Any], tmp_path: Path) -> None:
    server.files["/set.bin"] = b"content"
    server.status = lambda _, number: 503 if number < 3 else 200
    assert stage(f"{server.url}/set.bin")[0] == 0
    assert server.asked["/set.bin"] == 4


@pytest.mark.parametrize("lengths", [True, False], ids=["with length", "without length"])
def test_a_server_without_ranges_is_read_from_the_beginning(
    server: FileServer, stage: Callable[..., Any], tmp_path: Path, lengths: bool
) -> None:
    content = random_bytes(3 * CHUNK)
    server.files["/set.bin"] = content
    server.ranges, server.lengths = False, lengths
    server.breaks_after = lambda _, number: 100_000 if lengths and number in (0, 1, 2, 3) else None
    assert stage(f"{server.url}/set.bin")[0] == 0
    assert content_of(tmp_path / "set") == {"set.bin": content}


def test_wrong_bytes_are_fetched_once_more(server: FileServer, stage: Callable[..., Any], tmp_path: Path) -> None:
    content = random_bytes(2 * CHUNK + 5)
    url = a_list(server, {"set.bin": content})
    server.spoils = lambda path, number: path == "/set.bin" and number == 0
    code, lines = stage(url, "--list")
    assert code == 0
    assert content_of(tmp_path / "set") == {"set.bin": content}
    assert any("wrong bytes" in line.get("message", "") for line in lines)
    assert lines[-1]["bytes"] == len(content)


def test_bytes_that_are_always_wrong_never_appear(
    server: FileServer, stage: Callable[..., Any], tmp_path: Path
) -> None:
    url = a_list(server, {"set.bin": random_bytes(1000)})
    server.spoils = lambda path, _: path == "/set.bin"
    code, lines = stage(url, "--list")
    assert (code, lines[-1]["stage"]) == (1, "failed")
    assert re.search(
        r"came twice with wrong bytes: its checksum is sha256:\w{64}, and should be sha256:\w{64}", lines[-1]["message"]
    )
    assert not (tmp_path / "set").exists()


def test_a_file_that_changes_meanwhile_is_no_mixture(
    server: FileServer, stage: Callable[..., Any], tmp_path: Path
) -> None:
    old, new = random_bytes(3 * CHUNK, 1), random_bytes(3 * CHUNK, 2)
    server.files["/set.bin"] = old

    def change(_: str, number: int) -> int:
        if number == 0:
            server.files["/set.bin"] = new
        return 200

    server.status = change
    code, lines = stage(f"{server.url}/set.bin", "--workers", "1")
    assert code == 75
    assert "changed after it was listed" in lines[-1]["message"]
    assert stage(f"{server.url}/set.bin")[0] == 0
    assert content_of(tmp_path / "set") == {"set.bin": new}


def test_a_server_that_gives_up_is_tried_again_later_from_there(
    server: FileServer, stage: Callable[..., Any], tmp_path: Path
) -> None:
    content = random_bytes(4 * CHUNK)
    server.files["/set.bin"] = content
    server.breaks_after = lambda *_: 2 * CHUNK
    server.status = lambda _, number: 200 if number < 1 else 503
    code, lines = stage(f"{server.url}/set.bin", "--workers", "1")
    assert (code, lines[-1]["stage"]) == (75, "interrupted")
    server.status, server.breaks_after, server.sent_bytes = lambda *_: 200, lambda *_: None, 0
    code, lines = stage(f"{server.url}/set.bin")
    assert code == 0
    assert content_of(tmp_path / "set") == {"set.bin": content}
    assert server.sent_bytes == 2 * CHUNK


def test_what_was_damaged_between_two_tries_is_fetched_again(
    server: FileServer, stage: Callable[..., Any], tmp_path: Path
) -> None:
    files = {"a.bin": random_bytes(2000), "b.bin": random_bytes(1000)}  # the larger comes first
    url = a_list(server, files)
    server.status = lambda path, _: 503 if path == "/b.bin" else 200
    assert stage(url, "--list", "--workers", "1")[0] == 75
    (tmp_path / ".stage-set/files/a.bin").write_bytes(b"short")
    (tmp_path / ".stage-set/files/stray.bin").write_bytes(b"of nobody")
    server.status = lambda *_: 200
    assert stage(url, "--list")[0] == 0
    assert content_of(tmp_path / "set") == files


def test_what_is_not_there_is_said(server: FileServer, stage: Callable[..., Any], tmp_path: Path) -> None:
    code, lines = stage(f"{server.url}/none.bin")
    assert (code, lines[-1]["message"]) == (1, f"{server.url}/none.bin: 404")
    assert [path.name for path in tmp_path.iterdir()] == [".stage-set.lock"]
    code, lines = stage("ftp://host/set.bin")
    assert (code, lines[-1]["message"][:38]) == (1, "'ftp://host/set.bin' is no source: it ")
    assert not (tmp_path / "set").exists()


def test_what_does_not_fit_is_refused_before_it_begins(
    server: FileServer, stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/set.bin"] = random_bytes(2 * CHUNK)
    monkeypatch.setattr(Destination, "free_bytes", lambda _: 66 * 1024 * 1024 - 1)
    code, lines = stage(f"{server.url}/set.bin")
    assert code == 1
    assert lines[-1]["message"].startswith("2,097,152 bytes are to be written, and the file system of ")
    assert lines[-1]["message"].endswith("takes 2,097,151 more")
    assert server.asked["/set.bin"] == 0


@pytest.mark.parametrize("path", ["../out", "/etc/x", "a/../../out", ".stage.json", "a\nb", "a//b"])
def test_a_list_names_no_path_outside(server: FileServer, stage: Callable[..., Any], tmp_path: Path, path: str) -> None:
    server.files |= {"/x": b"x", "/list.json": json.dumps([{"url": "x", "path": path}]).encode()}
    code, lines = stage(f"{server.url}/list.json", "--list")
    assert (code, lines[-1]["stage"]) == (1, "failed")
    assert "names a file" in lines[-1]["message"]
    assert not list(tmp_path.rglob("out"))


def test_a_file_and_a_directory_of_one_name_are_refused(server: FileServer, stage: Callable[..., Any]) -> None:
    code, lines = stage(a_list(server, {"a": b"1", "a/b": b"2"}), "--list")
    assert (code, "has both a file 'a' and files below it" in lines[-1]["message"]) == (1, True)


@pytest.mark.parametrize("to", ["..", "/", ".", "../set", "/etc/set", ".stage-x"])
def test_a_destination_is_below_the_volume(server: FileServer, stage: Callable[..., Any], to: str) -> None:
    code, lines = stage(f"{server.url}/set.bin", to=to)
    assert (code, "must be a directory below" in lines[-1]["message"]) == (1, True)


def test_a_full_disk_is_said(server: FileServer, stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(web.Web, "fetch", full)
    code, lines = stage(a_list(server, {"a": b"1"}), "--list")
    assert (code, "No space left on device; " in lines[-1]["message"]) == (1, True)


def test_a_link_does_not_lead_out_of_the_volume(server: FileServer, stage: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/tmp")
    code, lines = stage(f"{server.url}/set.bin", to="link/set")
    assert (code, "leads out of" in lines[-1]["message"]) == (1, True)


def test_a_second_run_copies_nothing_and_says_so(server: FileServer, stage: Callable[..., Any], tmp_path: Path) -> None:
    url = a_list(server, {"a": b"1", "b": b"2"})
    assert stage(url, "--list")[0] == 0
    asked = server.asked.total()
    code, lines = stage(url, "--list", to=str(tmp_path / "set"))
    assert (code, lines[-1]["stage"]) == (0, "unchanged")
    assert "was complete already" in lines[-1]["message"]
    assert server.asked.total() == asked
    assert not (tmp_path / ".stage-set").exists()


def test_what_is_staged_is_not_taken_for_something_else(
    server: FileServer, stage: Callable[..., Any], tmp_path: Path
) -> None:
    one = a_list(server, {"a": b"1"})
    server.files["/other"] = b"2"
    assert stage(one, "--list")[0] == 0
    code, lines = stage(f"{server.url}/other")
    assert (code, f'{{"source": "{one}"' in lines[-1]["message"]) == (1, True)
    assert stage(f"{server.url}/other", "--replace")[0] == 0
    assert content_of(tmp_path / "set") == {"other": b"2"}


def test_a_staged_file_that_has_gone_is_noticed(server: FileServer, stage: Callable[..., Any], tmp_path: Path) -> None:
    url = a_list(server, {"a": b"1", "b": b"2"})
    assert stage(url, "--list")[0] == 0
    (tmp_path / "set/a").unlink()
    code, lines = stage(url, "--list")
    assert (code, "but a has gone: --replace" in lines[-1]["message"]) == (1, True)
    assert stage(url, "--list", "--replace")[0] == 0
    assert content_of(tmp_path / "set") == {"a": b"1", "b": b"2"}


def test_a_persons_own_files_are_never_replaced(server: FileServer, stage: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/mine").write_text("precious")
    url = a_list(server, {"a": b"1"})
    for options in ([], ["--replace"]):
        code, lines = stage(url, "--list", *options)
        assert (code, "not staged" in lines[-1]["message"]) == (1, True)
    assert content_of(tmp_path / "set") == {"mine": b"precious"}


def test_an_empty_directory_is_room_enough(server: FileServer, stage: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    assert stage(a_list(server, {"a": b"1"}), "--list")[0] == 0


def test_what_is_half_copied_of_another_source_gives_way(
    server: FileServer, stage: Callable[..., Any], tmp_path: Path
) -> None:
    server.files |= {"/one": random_bytes(1000), "/two": b"2"}
    server.status = lambda path, _: 404 if path == "/one" else 200
    assert stage(f"{server.url}/one")[0] == 1
    assert stage(f"{server.url}/two")[0] == 0
    assert content_of(tmp_path / "set") == {"two": b"2"}


def test_files_of_this_machine_are_copied_and_nothing_that_only_a_link_reaches(
    stage: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "from/deep").mkdir(parents=True)
    (tmp_path / "from/deep/a b").write_bytes(b"a")
    (tmp_path / "from/link").symlink_to("deep/a b")
    code, lines = stage((tmp_path / "from").as_uri())
    assert (code, content_of(tmp_path / "set")) == (0, {"deep/a b": b"a", "link": b"a"})
    assert "no checksum" not in lines[-1]["message"]
    for make in (lambda at: at.symlink_to("/etc/passwd"), lambda at: at.symlink_to("/etc"), os.mkfifo):
        make(tmp_path / "from/deep/x")
        code, lines = stage((tmp_path / "from").as_uri(), to="other")
        assert (code, (tmp_path / "other").exists()) == (1, False)
        assert re.search("deep/x (is a link out of .* to /etc|of .* is no regular file)", lines[-1]["message"])
        (tmp_path / "from/deep/x").unlink()


def test_the_environments_proxy_is_asked(
    server: FileServer, stage: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = random_bytes(2 * CHUNK + 5)
    server.files["/set.bin"] = content
    # A proxy is asked for a whole URL, and this one answers for every host.
    monkeypatch.setenv("http_proxy", server.url)
    assert stage("http://nowhere.invalid/set.bin")[0] == 0
    assert content_of(tmp_path / "set") == {"set.bin": content}
    assert {path for _, path, _ in server.seen} == {"http://nowhere.invalid/set.bin"}
    assert {headers["Host"] for *_, headers in server.seen} == {"nowhere.invalid"}
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server.seen.clear()
    assert stage(f"{server.url}/set.bin", to="direct")[0] == 0
    assert {path for _, path, _ in server.seen} == {"/set.bin"}


def test_an_encrypted_server_is_asked_through_the_proxy() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("https_proxy", "http://proxy.example:3128")
        pool = web.Web("https://host.example/x", 1, is_list=False)._pool
    assert (pool.proxy.host, pool.proxy.port) == ("proxy.example", 3128)


# --- Processes --------------------------------------------------------------------------------------------------------


def start(root: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "trainium_workloads.stage", *arguments, "--root", str(root)],
        env={**os.environ, "PYTHONPATH": str(WORKLOADS)},
        stdout=subprocess.PIPE,
        text=True,
    )


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


def test_killed_at_any_of_fifty_moments_it_goes_on_to_the_same_content(server: FileServer, tmp_path: Path) -> None:
    files = {f"{index}.bin": random_bytes(150_000 + 1_300_000 * (index % 4 == 0), index) for index in range(12)}
    url = a_list(server, files)
    server.seconds_a_piece = 0.002
    chance = random.Random(7)
    kills = 0
    command = [sys.executable, "-c", FORKS, url, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(WORKLOADS)}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as forks:
        assert forks.stdin is not None
        assert forks.stdout is not None
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


def test_asked_to_end_it_ends_at_once(server: FileServer, tmp_path: Path) -> None:
    server.files["/set.bin"] = random_bytes(4 * CHUNK)
    server.seconds_a_piece = 1.0
    process = start(tmp_path, f"{server.url}/set.bin", "--to", "set")
    until(lambda: server.asked["/set.bin"])
    process.terminate()
    out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 143
    assert json.loads(out.splitlines()[-1])["stage"] == "interrupted"


def test_of_two_at_once_one_writes_and_the_other_finds_it_done(server: FileServer, tmp_path: Path) -> None:
    server.files["/set.bin"] = random_bytes(3 * CHUNK)
    goes_on = threading.Event()

    def status(_path: str, _number: int) -> int:
        goes_on.wait(SECONDS)
        return 200

    server.status = status
    writes = start(tmp_path, f"{server.url}/set.bin", "--to", "set")
    until(lambda: server.asked["/set.bin"])
    waits = start(tmp_path, f"{server.url}/set.bin", "--to", "set")
    assert waits.stdout is not None
    assert any("is being written by" in line for line in iter(waits.stdout.readline, ""))
    goes_on.set()
    last = [process.communicate(timeout=SECONDS)[0].splitlines()[-1] for process in (writes, waits)]
    assert [process.returncode for process in (writes, waits)] == [0, 0]
    assert [json.loads(line)["stage"] for line in last] == ["complete", "unchanged"]
    assert server.sent_bytes == 3 * CHUNK


def test_a_directory_that_goes_while_its_bytes_are_counted_ends_nothing(tmp_path: Path) -> None:
    counted, ended = SimpleNamespace(_parts=tmp_path), threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            (tmp_path / "x.hub" / "notes").mkdir(parents=True)
            shutil.rmtree(tmp_path / "x.hub")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        assert {Destination.part_bytes(counted) for _ in range(1000)} == {0}  # type: ignore[arg-type]
    finally:
        ended.set()
        thread.join()
