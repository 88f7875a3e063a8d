"""A trained model at work: over HTTP and in batches, what is refused, how it ends."""

import csv
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import torch
from gangs import WORKLOADS, Gang
from pyarrow import parquet
from trainium_workloads.bert.model import SIZES
from trainium_workloads.polarity import saved, synthetic
from trainium_workloads.polarity.model import Polarity
from trainium_workloads.polarity.wordpieces import learn
from trainium_workloads.serving import batch, inputs, runners, server
from trainium_workloads.serving.batcher import Batcher, Busy
from trainium_workloads.serving.predictor import Prediction, Predictor
from trainium_workloads.serving.shapes import Shapes
from trainium_workloads.training.refusal import EXIT_CODE, Refusal
from waiting import SECONDS, until

SHAPES = Shapes((8, 16), (1, 4))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows nothing yet."""
    directory = tmp_path_factory.mktemp("served") / "model"
    torch.manual_seed(0)
    made = Polarity(SIZES["tiny"])
    pieces = learn((text for chunk in synthetic.chunks(0, 200) for text in chunk.texts), 512)
    saved.publish(made.state_dict(), made.sizes, pieces, 64, directory)
    return directory


@pytest.fixture(scope="module")
def predictor(model: Path) -> Predictor:
    found = saved.load(model)
    return Predictor(
        runners.runners(found, "cpu", SHAPES, copies=1, graphs=model.parent), found.pieces, found.labels, SHAPES
    )


# --- Predictions ------------------------------------------------------------------------------------------------------


def test_shapes_are_few_and_the_longest_is_the_models_own() -> None:
    shapes = Shapes.up_to(100, (8, 1))
    assert (shapes.lengths, shapes.batches, shapes.most) == ((32, 64, 100), (1, 8), 8)
    assert [shapes.length(pieces) for pieces in (3, 32, 33, 100, 500)] == [32, 32, 64, 100, 100]
    assert [shapes.batch(texts) for texts in (1, 2, 8)] == [1, 8, 8]
    assert Shapes.up_to(16, (1,)).lengths == (16,)


def test_predictions_keep_their_order_and_do_not_depend_on_their_company(predictor: Predictor) -> None:
    texts = [synthetic.review(1, number)[2] for number in range(11)] + ["", "short"]
    together = predictor.predict(texts)
    alone = [predictor.predict([text])[0] for text in texts]
    assert [each.label for each in together] == [each.label for each in alone]
    assert [each.score for each in together] == pytest.approx([each.score for each in alone], abs=1e-4)
    assert all(0.5 <= each.score <= 1 for each in together)
    assert predictor.predict([]) == []


def test_only_the_shapes_that_were_compiled_are_computed(model: Path) -> None:
    seen = []

    def run(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        seen.append((*ids.shape, int(mask.sum())))
        return torch.tensor([[0.0, 2.0]]).expand(len(ids), -1)

    found = saved.load(model)
    fake = Predictor([run], found.pieces, found.labels, SHAPES)
    fake.warm_up()
    assert sorted(each[:2] for each in seen) == sorted(SHAPES.all)
    seen.clear()
    assert fake.predict(["lamp"] * 6 + ["lamp " * 40]) == [Prediction("positive", 0.880797)] * 7
    assert [each[:2] for each in seen] == [(4, 8), (4, 16)]


def test_batches_are_gathered_and_answers_go_where_they_belong() -> None:
    sizes, hold = [], threading.Event()

    def predict(texts: Sequence[str]) -> list[Prediction]:
        sizes.append(len(texts))
        hold.wait(SECONDS)
        return [Prediction(text, 1.0) for text in texts]

    batcher = Batcher(predict, most=8, room=12)
    first = batcher.submit(["first"])
    until(lambda: sizes)
    rest = [batcher.submit([f"{number}", "x"]) for number in range(5)]
    with pytest.raises(Busy):
        batcher.submit(["no", "room"])
    hold.set()
    assert [each.label for each in first.result(SECONDS)] == ["first"]
    assert [each.result(SECONDS)[0].label for each in rest] == [f"{number}" for number in range(5)]
    batcher.close()
    assert sizes == [1, 8, 2]


def test_a_model_that_fails_is_heard_of() -> None:
    def predict(texts: Sequence[str]) -> list[Prediction]:
        raise ValueError("broken")

    batcher = Batcher(predict, most=8)
    with pytest.raises(ValueError, match="broken"):
        batcher.submit(["a"]).result(SECONDS)
    assert batcher.is_alive
    batcher.close()


def test_traced_graphs_are_kept_and_each_core_has_its_own(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With PyTorch's own tracing in the place of Neuron's, which makes the same kind of module."""
    traced = []

    class Neuron:
        __version__ = "2.9"

        @staticmethod
        def trace(module: torch.nn.Module, example: tuple[torch.Tensor, ...]) -> Any:
            traced.append(tuple(example[0].shape))
            return torch.jit.trace(module, example)

    monkeypatch.setitem(sys.modules, "torch_neuronx", Neuron)
    found = saved.load(model)
    copies = runners.runners(found, "xla", SHAPES, copies=2, graphs=tmp_path / "graphs")
    assert sorted(traced) == sorted(SHAPES.all)
    runners.runners(found, "xla", SHAPES, copies=1, graphs=tmp_path / "graphs")
    assert len(traced) == len(SHAPES.all), "what was kept is taken"
    (plain,) = runners.runners(found, "cpu", SHAPES, copies=1, graphs=tmp_path)
    ids = torch.from_numpy(found.pieces.encode(["superb lamp"] * 4, 16))
    for each in copies:
        torch.testing.assert_close(each(ids, (ids != 0).long()), plain(ids, (ids != 0).long()), rtol=1e-4, atol=1e-5)


def test_what_is_no_model_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"no model's directory: config\.json: No such file"):
        saved.load(tmp_path)
    config = json.loads((model / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["BertForPreTraining"]}))
    with pytest.raises(Refusal, match="holds BertForPreTraining, and only BertForSequenceClassification can predict"):
        saved.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "llama"}))
    with pytest.raises(Refusal, match="of the type llama, not bert"):
        saved.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(Refusal, match=r"model\.safetensors is not there"):
        saved.load(tmp_path)


@pytest.mark.parametrize("was_there", [False, True])
def test_a_model_is_put_into_a_mount_and_replaces_one_that_was_there(
    model: Path, tmp_path: Path, was_there: bool
) -> None:
    """SageMaker's /opt/ml/model is there before, and empty."""
    found = saved.load(model)
    place = tmp_path / "model"
    place.mkdir()
    (place / "kept").touch()
    if was_there:
        saved.publish(found.model.state_dict(), found.model.sizes, found.pieces, 8, place)
        assert saved.load(place).length == 8
        assert (place / "kept").exists()
    saved.publish(found.model.state_dict(), found.model.sizes, found.pieces, 16, place)
    assert saved.load(place).length == 16
    assert (place / "kept").exists() is not was_there
    assert [each.name for each in tmp_path.iterdir()] == ["model"]
    assert not [each.name for each in place.iterdir() if each.name.startswith(".")]


# --- Over HTTP --------------------------------------------------------------------------------------------------------


class Client:
    def __init__(self, port: int) -> None:
        self.port = port

    def __call__(self, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def predict(self, *texts: str) -> tuple[int, Any]:
        return self("POST", "/predict", json.dumps({"texts": texts}).encode())


@pytest.fixture
def service(predictor: Predictor) -> Iterator[tuple[server.Service, Client]]:
    found = server.Service(("127.0.0.1", 0))
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found, Client(found.server_port)
    finally:
        found.shutdown()
        thread.join()
        found.finish()
        found.server_close()


def test_it_is_ready_when_the_model_has_answered_and_not_before(
    service: tuple[server.Service, Client], predictor: Predictor
) -> None:
    served, ask = service
    assert ask("GET", "/ready")[0] == 503
    assert ask("GET", "/healthz") == (200, {"healthy": True})
    assert ask.predict("too early")[0] == 503
    served.ready(predictor)
    assert ask("GET", "/ready") == (200, {"ready": True})
    status, answer = ask.predict("a superb lamp", "a broken kettle")
    assert status == 200
    assert [each.keys() for each in answer["predictions"]] == [{"label", "score"}] * 2
    assert answer["predictions"][0]["label"] == predictor.predict(["a superb lamp"])[0].label


def test_many_ask_at_once(service: tuple[server.Service, Client], predictor: Predictor) -> None:
    served, ask = service
    served.ready(predictor)
    texts = [synthetic.review(2, number)[2] for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask.predict, texts))
    expected = predictor.predict(texts)
    assert [status for status, _ in answers] == [200] * 24
    assert [answer["predictions"][0]["label"] for _, answer in answers] == [each.label for each in expected]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"no json", 400, "the body must be JSON"),
        (b"[]", 400, "the body must be JSON"),
        (b'{"text": "a"}', 400, "the body must be JSON"),
        (b'{"texts": []}', 400, "one or more strings"),
        (b'{"texts": ["a", 1]}', 400, "one or more strings"),
        (b'{"texts": "a"}', 400, "one or more strings"),
        (b"[" * 100_000, 400, "the body must be JSON"),
        (json.dumps({"texts": ["a"] * 257}).encode(), 400, "at most 256 texts at once, not 257"),
        (b" " * (server.LARGEST_BYTES + 1), 413, "send fewer texts"),
    ],
)
def test_what_cannot_be_answered_is_said(
    service: tuple[server.Service, Client], body: bytes, status: int, words: str
) -> None:
    found, answer = service[1]("POST", "/predict", body)
    assert (found, words in answer["error"]) == (status, True), answer


def test_other_paths_and_requests_without_a_length_are_refused(service: tuple[server.Service, Client]) -> None:
    _, ask = service
    assert ask("GET", "/")[0] == ask("POST", "/else", b"{}")[0] == 404
    assert ask("POST", "/predict")[0] == 400  # an empty body
    with socket.create_connection(("127.0.0.1", ask.port), timeout=SECONDS) as raw:
        raw.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 411 " in raw.recv(200)


def test_the_process_serves_and_ends_by_sigterm_with_what_it_was_asked_answered(gang: Gang, tmp_path: Path) -> None:
    """Trained by a gang, served by a process: a good review is good, a bad one bad."""
    tiny = ("--size", "tiny", "--length", 32, "--precision", "fp32", "--synthetic", 600, "--steps", 60)
    gang("trainium_workloads.polarity.train", *tiny, "--output", "out", ranks=1)
    # A connection that nobody uses is not given up: if it held the end up, there would be none.
    program = (
        "from trainium_workloads.serving import server; server._Handler.timeout = None; raise SystemExit(server.main())"
    )
    command = [sys.executable, "-c", program, "out/model", "--host", "127.0.0.1", "--port", "0", "--linger", "8"]
    environment = {**os.environ, "PYTHONPATH": str(WORKLOADS)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        ask = Client(port)
        status, answer = ask.predict(
            "This lamp is superb and reliable. My family loves it.", "A broken kettle. I sent it back."
        )
        assert (status, [each["label"] for each in answer["predictions"]]) == (200, ["positive", "negative"])
        kept_open = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        kept_open.request("GET", "/ready")
        assert kept_open.getresponse().read()
        process.send_signal(signal.SIGTERM)
        until(lambda: ask("GET", "/ready")[0] != 200, "the end of readiness")
        assert ask.predict("still here")[0] == 200
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()


# --- In batches -------------------------------------------------------------------------------------------------------

REVIEWS = [synthetic.review(7, number) for number in range(40)]


def write_input(directory: Path, suffix: str) -> Path:
    file = directory / f"reviews{suffix}"
    if suffix == ".jsonl":
        file.write_text("\n".join(json.dumps({"id": 1, "content": text}) for _, _, text in REVIEWS) + "\n\n")
    elif suffix == ".csv":
        with file.open("w", newline="") as text:
            csv.writer(text).writerows([("label", "title", "content"), *REVIEWS])
    else:
        columns = zip(*REVIEWS, strict=True)
        parquet.write_table(pyarrow.table(dict(zip(("label", "title", "content"), columns, strict=True))), file)
    return file


def run_batch(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr("sys.argv", ["batch", *map(str, arguments)])
    return batch.main()


@pytest.mark.parametrize("suffix", inputs.SUFFIXES)
def test_each_format_is_predicted(
    model: Path, predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    output = tmp_path / "new" / "predictions.jsonl"
    assert run_batch(monkeypatch, model, write_input(tmp_path, suffix), "--to", output) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["row"] for row in rows] == list(range(1, 41))
    found = saved.load(model)
    shapes = Shapes.up_to(found.length, (1, 8, 32))
    judge = Predictor(
        runners.runners(found, "cpu", shapes, copies=1, graphs=tmp_path), found.pieces, found.labels, shapes
    )
    assert [row["label"] for row in rows] == [each.label for each in judge.predict([text for _, _, text in REVIEWS])]
    assert [each.name for each in output.parent.iterdir()] == ["predictions.jsonl"]
    with pytest.raises(Refusal, match=r"is there already; --replace"):
        run_batch(monkeypatch, model, write_input(tmp_path, suffix), "--to", output)


def test_predictions_are_written_as_csv_too(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.jsonl").write_text('{"body": "fine"}\n{"body": "bad"}\n')
    output = tmp_path / "out.csv"
    assert run_batch(monkeypatch, model, tmp_path / "in.jsonl", "--to", output, "--field", "body") == 0
    rows = list(csv.DictReader(output.open()))
    assert [row["row"] for row in rows] == ["1", "2"]
    assert rows[0].keys() == {"row", "label", "score"}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", "x", r"must end with \.jsonl, \.csv or \.parquet"),
        ("a.jsonl", "{}\n", "row 1: there is no content or text, only none; --field"),
        ("a.jsonl", '{"body": "x"}\n', "row 1: there is no content or text, only body"),
        ("a.jsonl", '{"text": "x"}\n{"text": 3}\n', "row 2: text is 3, no text"),
        ("a.jsonl", "x\n", "line 1 is no JSON"),
        ("a.jsonl", "3\n", "line 1 must be a JSON object, not int"),
        ("a.jsonl", "", "holds no rows"),
        ("a.parquet", "x", "cannot be read as Parquet"),
    ],
)
def test_a_wrong_input_is_refused_and_leaves_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, words: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(Refusal, match=words):
        run_batch(monkeypatch, model, tmp_path / name, "--to", tmp_path / "out.jsonl")
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_refusal_is_an_exit_code_that_ends_the_job(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainium_workloads.training.refusal import guarded

    monkeypatch.setattr("sys.argv", ["batch", str(model), str(tmp_path / "none.csv"), "--to", str(tmp_path / "o.csv")])
    assert guarded(batch.main) == EXIT_CODE
    assert "refused: there is no" in capsys.readouterr().err
