"""SageMaker's contract for containers that serve: the command ``serve``, ``GET /ping`` and ``POST /invocations``.

The model is in ``/opt/ml/model``, the port in ``SAGEMAKER_BIND_TO_PORT``, the number of processes in
``SAGEMAKER_MODEL_SERVER_WORKERS``, the engine in ``TRN_ENGINE``. Endpoints and batch transform have the same contract
(SageMaker developer guide, custom inference code); batch transform sends lines of several records at once
(``MultiRecord``).
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainium_workloads.training.refusal import RefusalError, guarded

MODEL = Path("/opt/ml/model")
LINES = ("application/jsonlines", "application/x-ndjson")
FIELD = "TRN_TEXT_FIELD"
"""Variable: the key of a record's text; unset for ``content`` or ``text``."""

_TEXTS = 256
"""Texts of one request to the classifier."""


class Invocations:
    """ASGI application around a server's, which answers at SageMaker's paths as well.

    ``application/json`` is a request of the server: ``texts``, or OpenAI's ``messages`` or ``prompt``.
    ``application/jsonlines`` has a record a line (a text, an object with one, or a request), and is answered by a
    line for each.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request; requests with other paths are left to the server."""
        if scope["type"] == "http" and scope["path"] == "/ping":
            await self._app(_at(scope, "/health"), receive, send)
        elif scope["type"] == "http" and scope["path"] == "/invocations" and scope["method"] == "POST":
            await self._invoke(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _invoke(self, scope: Any, receive: Any, send: Any) -> None:
        content = dict(scope["headers"]).get(b"content-type", b"application/json").decode("latin-1")
        content = content.partition(";")[0].strip().lower()
        body = await _read(receive)
        if content == "application/json":
            try:
                request = _request(json.loads(body))
            except ValueError as error:
                await _answer(send, 400, _detail(f"the body is not a request: {error}"))
            else:
                await self._app(*_posted(scope, receive, *request), send)
        elif content in LINES:
            await _answer(send, *await self._lines(scope, receive, body), content)
        else:
            await _answer(send, 415, _detail(f"Content-Type must be application/json or {LINES[0]}, not {content}"))

    async def _lines(self, scope: Any, receive: Any, body: bytes) -> tuple[int, bytes]:
        """Return the status and a line for each record, or the first error."""
        try:
            requests = [*_requests(body)]
        except ValueError as error:
            return 400, _detail(str(error))
        found: list[bytes] = []
        for request in requests:
            taken: list[dict[str, Any]] = []

            async def take(message: dict[str, Any], taken: list[dict[str, Any]] = taken) -> None:
                taken.append(message)

            await self._app(*_posted(scope, receive, *request), take)
            answer = b"".join(each.get("body", b"") for each in taken)
            if taken[0]["status"] != 200:
                return taken[0]["status"], answer
            answered = json.loads(answer)
            found += [json.dumps(each).encode() + b"\n" for each in answered.get("predictions", [answered])]
        return 200, b"".join(found)


def _request(record: Any) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of a request to the server; ValueError: the record is none of these."""
    if isinstance(record, dict) and "texts" in record:
        return "/predict", record
    if isinstance(record, dict) and ("messages" in record or "prompt" in record):
        # SageMaker's callers name an endpoint, not a model.
        return f"/v1/{'chat/' if 'messages' in record else ''}completions", {"model": "model", **record}
    raise ValueError("it must be an object with texts, messages or prompt")


def _requests(body: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the requests for the lines of a body, in order; texts are joined. ValueError has the number of the first
    wrong line."""
    texts: list[str] = []
    names = [os.environ[FIELD]] if os.environ.get(FIELD) else ["content", "text"]
    for number, line in enumerate(body.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            text = record if isinstance(record, str) else next((record[name] for name in names if name in record), None)
            request = _request(record) if text is None else None
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number} is neither a text, nor has {' or '.join(names)}: {error}") from None
        if request is None and not isinstance(text, str):
            raise ValueError(f"line {number}: the text is not a string")
        if texts and (request is not None or len(texts) == _TEXTS):
            yield "/predict", {"texts": texts}
            texts = []
        if request is None:
            texts.append(str(text))
        else:
            yield request
    if texts:
        yield "/predict", {"texts": texts}


def _at(scope: Any, path: str, **more: Any) -> Any:
    return {**scope, "path": path, "raw_path": path.encode(), **more}


def _posted(scope: Any, receive: Any, path: str, request: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return scope and messages of a request with a JSON body."""
    body = json.dumps(request).encode()
    others = [(name, value) for name, value in scope["headers"] if name not in (b"content-type", b"content-length")]
    headers = [*others, (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    messages = iter([{"type": "http.request", "body": body}])

    async def read() -> Any:
        return next(messages, None) or await receive()

    return _at(scope, path, headers=headers), read


async def _read(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _answer(send: Any, status: int, body: bytes, content: str = "application/json") -> None:
    kind = content if status == 200 else "application/json"
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _detail(text: str) -> bytes:
    return json.dumps({"detail": text}).encode()


def arguments(environment: Mapping[str, str], model: Path = MODEL) -> list[str]:
    """Return the arguments of :mod:`.server` for SageMaker's variables and the directory of the model, or its parent;
    refuse a variable that is no number."""
    from trainium_workloads.serving.served_model import ADAPTER

    numbers = {"--port": "SAGEMAKER_BIND_TO_PORT", "--copies": "SAGEMAKER_MODEL_SERVER_WORKERS"}
    wrong = next((name for name in numbers.values() if not environment.get(name, "0").isdigit()), None)
    if wrong:
        raise RefusalError(f"{wrong} must be a whole number, not {environment[wrong]}")
    found = {**numbers, "--engine": "TRN_ENGINE"}
    words = [word for option, name in found.items() if environment.get(name) for word in (option, environment[name])]
    inside = model / "model"
    place = inside if any((inside / name).is_file() for name in ("config.json", ADAPTER)) else model
    # Graphs that were traced before are in the archive; the model's directory may be read-only.
    graphs = place / "graphs" if (place / "graphs").is_dir() else Path(tempfile.gettempdir()) / "graphs"
    return [str(place), "--graphs", str(graphs), *words]


def main() -> int:
    """Serve the model of a SageMaker container; return the exit code."""
    from trainium_workloads.serving import server

    sys.argv[1:] = arguments(os.environ)
    return server.main()


if __name__ == "__main__":
    sys.exit(guarded(main))
