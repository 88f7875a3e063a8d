"""What the tests of staging share."""

import json
import time
from types import SimpleNamespace

import pytest
from staging_servers import file_server
from trainium_workloads.stage import copying, web
from trainium_workloads.stage.__main__ import main


@pytest.fixture
def server():
    with file_server() as stub:
        yield stub


@pytest.fixture
def folder(tmp_path):
    """Write files below a directory of this machine, and return its URL."""

    def write(files):
        for path, content in files.items():
            file = tmp_path / "from" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return (tmp_path / "from").as_uri()

    return write


@pytest.fixture
def stage(tmp_path, capsys, monkeypatch):
    """Run the command in this process; its exit code, its lines, and what the last one says."""
    monkeypatch.setattr(copying, "pause", lambda seconds: time.sleep(min(seconds, 0.002)))
    monkeypatch.setattr(web, "_RETRIES", web._RETRIES.new(backoff_factor=0, total=2))

    def run(source, *options, to="set"):
        code = main([source, "--to", to, "--root", str(tmp_path), *options])
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return SimpleNamespace(code=code, lines=lines, **lines[-1])

    return run
