"""A double of AWS: answers by operation, in any order and from any thread, which botocore's own Stubber cannot.

Requests and answers are validated by botocore's models, as Stubber does, so that no test rests on a field that AWS does
not have.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from types import SimpleNamespace
from typing import Any

import boto3  # type: ignore[import-untyped]
import botocore.session  # type: ignore[import-untyped]
from botocore.validate import ParamValidator  # type: ignore[import-untyped]


@dataclass(frozen=True)
class AwsError:
    code: str
    message: str = ""
    headers: Mapping[str, str] | None = None


Answer = Any | AwsError | Exception | Callable[[Mapping[str, Any]], Any]
"""A document, an error of AWS or of the network, or what makes one from the request's parameters."""


class AwsDouble:
    """Answers for operations, by ``service:Operation``; others answer as AWS does to who may not ask."""

    def __init__(self, answers):
        self.answers = dict(answers)
        self.asked = []
        self._lock = Lock()

    def session(self):
        core = botocore.session.Session()
        core.register("before-parameter-build", self._keep)
        core.register("before-call", self._answer)
        return boto3.Session("AKIATEST", "secret", botocore_session=core)

    def _keep(self, params, context, **_):
        context["asked"] = dict(params)

    def _answer(self, model, context, **_):
        name = f"{model.service_model.service_name}:{model.name}"
        with self._lock:
            self.asked.append((name, context["asked"]))
        answer = self.answers.get(name, AwsError("AccessDenied", "not in this test"))
        if callable(answer):
            answer = answer(context["asked"])
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, AwsError):
            error = {"Code": answer.code, "Message": answer.message}
            metadata = {"HTTPHeaders": dict(answer.headers or {})}
            return SimpleNamespace(status_code=400), {"Error": error, "ResponseMetadata": metadata}
        if model.output_shape is not None:
            report = ParamValidator().validate(answer, model.output_shape)
            if report.has_errors():
                raise AssertionError(f"{name} does not answer so: {report.generate_report()}")
        return SimpleNamespace(status_code=200), {"ResponseMetadata": {"HTTPHeaders": {}}, **answer}
