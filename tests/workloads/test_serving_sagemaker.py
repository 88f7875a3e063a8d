"""SageMaker's contract: a container that serves, as an endpoint and batch transform ask it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from gangs import WORKLOADS, free_port
from trainium_workloads.serving import sagemaker
from trainium_workloads.training.refusal import Refusal
from waiting import SECONDS, until

LINES = "application/jsonlines"


class Container:
    """The image's command ``serve``, with a model in another place than ``/opt/ml/model``."""

    def __init__(self, model: Path) -> None:
        self.port = free_port()
        start = (
            "import sys; from pathlib import Path; from trainium_workloads.serving import sagemaker as s; "
            "s.arguments.__defaults__ = (Path(sys.argv[1]),); sys.exit(s.main())"
        )
        environment = {
            **os.environ, "PYTHONPATH": str(WORKLOADS), "USE_TORCH_XLA": "0", "OMP_NUM_THREADS": "1",
            "SAGEMAKER_BIND_TO_PORT": str(self.port), "SAGEMAKER_MODEL_SERVER_WORKERS": "1", "TRN_BACKEND": "cpu",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-c", start, model], env=environment, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def ask(self, method: str, path: str, body: bytes = b"", content: str = "application/json") -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request(method, path, body, {"Content-Type": content})
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    def is_healthy(self) -> bool:
        assert self.process.poll() is None
        try:
            return self.ask("GET", "/ping")[0] == 200
        except OSError:
            return False


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Container]]:
    place = tmp_path_factory.mktemp("models")
    tiny_models.make(place)
    (place / "ml").mkdir()
    (place / "classifier").rename(place / "ml" / "model")  # as the archive of a training has it
    found = {"classifier": Container(place / "ml"), "generator": Container(place / "generator")}
    try:
        for name, each in found.items():
            until(each.is_healthy, f"the first /ping of the {name}")
        yield found
    finally:
        for each in found.values():
            with suppress(ProcessLookupError):
                os.killpg(each.process.pid, signal.SIGKILL)
            each.process.wait()


def test_a_classifier_answers_invocations_and_lines_of_several_records(containers: dict[str, Container]) -> None:
    classifier = containers["classifier"]
    status, answer = classifier.ask("POST", "/invocations", json.dumps({"texts": ["a lamp", "a chair"]}).encode())
    alone = json.loads(answer)["predictions"]
    assert (status, len(alone)) == (200, 2)
    records = [{"content": "a lamp"}, "a chair", {"text": "a lamp", "stars": 5}] * 100
    body = "\n".join(map(json.dumps, records)).encode() + b"\n\n"
    status, answer = classifier.ask("POST", "/invocations", body, LINES)
    lines = [json.loads(line) for line in answer.splitlines()]
    assert (status, len(lines)) == (200, 300)
    assert [each["label"] for each in lines[:3]] == [alone[0]["label"], alone[1]["label"], alone[0]["label"]]
    assert lines[299]["score"] == pytest.approx(alone[0]["score"], abs=1e-4)


@pytest.mark.parametrize(
    ("body", "content", "status", "words"),
    [
        (b'"a"\n{"stars": 5}', LINES, 400, "line 2 is neither a text, nor has content or text"),
        (b'{"text": 5}', LINES, 400, "line 1: the text is no string"),
        (b"{", LINES, 400, "line 1"),
        (b"[]", "application/json", 400, "an object with texts, messages or prompt"),
        (b"a", "text/csv", 415, "Content-Type must be application/json or application/jsonlines"),
        (b'{"texts": []}', "application/json", 422, "texts"),
    ],
)
def test_a_wrong_record_is_answered_by_its_line(
    containers: dict[str, Container], body: bytes, content: str, status: int, words: str
) -> None:
    found, answer = containers["classifier"].ask("POST", "/invocations", body, content)
    assert (found, words in answer.decode()) == (status, True), answer


def test_a_generator_answers_chats_alone_in_lines_and_in_pieces(containers: dict[str, Container]) -> None:
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
    status, answer = containers["generator"].ask("POST", "/invocations", json.dumps(chat).encode())
    assert (status, json.loads(answer)["choices"][0]["message"]["role"]) == (200, "assistant")
    body = f"{json.dumps(chat)}\n{json.dumps({'prompt': 'Hello', 'max_tokens': 2})}".encode()
    status, answer = containers["generator"].ask("POST", "/invocations", body, LINES)
    assert (status, [set(json.loads(each)["choices"][0]) & {"message", "text"} for each in answer.splitlines()]) == (
        200, [{"message"}, {"text"}],
    )  # fmt: skip
    status, answer = containers["generator"].ask("POST", "/invocations", json.dumps({**chat, "stream": True}).encode())
    assert (status, b'"completion_tokens":2' in answer) == (200, True), answer


def test_variables_become_options(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    variables = {"SAGEMAKER_BIND_TO_PORT": "8081", "SAGEMAKER_MODEL_SERVER_WORKERS": "2", "TRN_ENGINE": "classifier"}
    found = sagemaker.arguments(variables, tmp_path)
    assert found[:3] == [str(tmp_path), "--graphs", f"{tmp_path}/graphs"]
    assert found[3:] == ["--port", "8081", "--copies", "2", "--engine", "classifier"]
    with pytest.raises(Refusal, match="SAGEMAKER_BIND_TO_PORT must be a whole number, not http"):
        sagemaker.arguments({"SAGEMAKER_BIND_TO_PORT": "http"})


def test_a_record_s_text_may_have_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sagemaker.FIELD, "body")
    assert [*sagemaker._requests(b'{"body": "a", "text": "b"}')] == [("/predict", {"texts": ["a"]})]
