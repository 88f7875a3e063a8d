"""A conversation as the text that a chat model has learnt, by the Jinja template beside its tokenizer."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainium_workloads.training.refusal import Refusal


def template_beside(tokenizer: Path) -> str:
    """Return the template in ``chat_template.jinja``, or in ``tokenizer_config.json``; empty without one.

    Args:
        tokenizer: the directory.
    """
    own = tokenizer / "chat_template.jinja"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    found = _settings(tokenizer).get("chat_template") or ""
    if isinstance(found, list):  # several, by name
        found = next((each["template"] for each in found if each.get("name") == "default"), "")
    return str(found)


def renderer(tokenizer: Path) -> Callable[[Sequence[Mapping[str, str]]], str]:
    """Return a function that makes the text of a conversation.

    Args:
        tokenizer: its directory.

    Raises:
        Refusal: the tokenizer has no template, or Jinja is not there. The function raises it for a conversation that
            the template does not take.
    """
    source = template_beside(tokenizer)
    if not source:
        raise Refusal(
            f"the data are conversations, and the tokenizer in {tokenizer} has no chat template: take the tokenizer of "
            "a chat model (--tokenizer DIRECTORY), or data with a column of texts"
        )
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise Refusal("chat templates need the package jinja2, which this image lacks") from None

    def refused(message: str) -> None:
        raise TemplateError(message)

    # A template comes with a download, so it runs in Jinja's sandbox; the two settings are those that templates expect.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refused
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(source)
    special = _special_tokens(tokenizer)

    def render(messages: Sequence[Mapping[str, str]]) -> str:
        try:
            return template.render(messages=messages, add_generation_prompt=False, **special)
        except TemplateError as error:
            raise Refusal(f"the chat template does not take a conversation: {error}") from None

    return render


def _special_tokens(tokenizer: Path) -> dict[str, str]:
    """Return ``bos_token`` and its like, which templates use by name."""
    found: dict[str, str] = {}
    for name, value in _settings(tokenizer).items():
        if name.endswith("_token") and isinstance(value, str | dict) and value:
            found[name] = str(value["content"] if isinstance(value, dict) else value)
    return found


def _settings(tokenizer: Path) -> dict[str, Any]:
    path = tokenizer / "tokenizer_config.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
