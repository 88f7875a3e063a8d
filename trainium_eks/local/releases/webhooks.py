"""The rewriting of a chart's webhooks before Helm installs them.

The pods of a local cluster are simulated: no process answers behind a Service. A webhook that fails closed would make
the API server refuse all its objects, and an APIService would spoil discovery. So webhooks are either sent to a real
process of this machine, or left out; the release's manifest lists the left-out ones as comments.

Helm runs this file as its post-renderer, alone and without the package around it::

    python -P webhooks.py '{"volcano-system/volcano-admission-service": {"url": "https://…", "caBundle": "…"}}'
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

Answering = Mapping[str, Mapping[str, str]]
"""``namespace/name`` of a Service to ``url`` (without path) and ``caBundle`` of the process that answers for it."""

_REACHING = (*WEBHOOK_KINDS, "APIService")
_MAY_REACH = re.compile(rf"\bkind[\"']?\s*:\s*[\"']?({'|'.join(_REACHING)})\b")  # in JSON, too
_SEPARATOR = re.compile(r"^---[ \t]*(?:#.*)?$", re.MULTILINE)
_LEFT_OUT = "# trn leaves out: "
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def main() -> None:
    """Run as a post-renderer: manifest from stdin, manifest to stdout."""
    manifest = rewritten(sys.stdin.read(), json.loads(sys.argv[1]))
    # With PYTHONUNBUFFERED, sys.stdout drops the rest when a signal cuts a write short, and Helm installs half a chart.
    with open(1, "w", encoding="utf-8", closefd=False) as helm:
        helm.write(manifest)


def rewritten(manifest: str, answering: Answering) -> str:
    """Return the manifest without the webhooks and APIServices that no process answers."""
    kept, dropped = [], []
    for document in documents(manifest):
        before = parsed(document) if _MAY_REACH.search(document) else {}
        if before.get("kind") not in _REACHING:
            kept.append(document)
            continue
        after = _answered(before, answering)
        # Listed also where only some webhooks of an object are left out.
        dropped += (
            [f"{before['kind']} {before['metadata']['name']}"]
            if after is None
            else sorted(
                f"{before['kind']} {before['metadata']['name']} ({name})"
                for name in _webhooks(before) - _webhooks(after)
            )
        )
        if after is not None:
            kept.append(document if after == before else yaml.safe_dump(after, sort_keys=False))
    # Within the first document: comments alone would be a document without an object.
    comments = "".join(f"{_LEFT_OUT}{each}\n" for each in dropped)
    return "".join(
        f"---\n{comments if index == 0 else ''}{document.strip()}\n" for index, document in enumerate(kept or [""])
    )


def left_out(manifest: str) -> list[str]:
    """Return the objects that :func:`rewritten` left out of this manifest, each as kind and name."""
    lines = manifest.splitlines()
    return [line.removeprefix(_LEFT_OUT) for line in lines if line.startswith(_LEFT_OUT)]


def documents(manifest: str) -> Iterator[str]:
    """Yield the YAML documents of a manifest that are more than comments."""
    for document in _SEPARATOR.split(manifest):
        if any(line.strip() and not line.lstrip().startswith("#") for line in document.splitlines()):
            yield document


def parsed(document: str) -> dict[str, Any]:
    """Return one document as data; empty when it is no object."""
    data = yaml.load(document, Loader=_LOADER)
    return data if isinstance(data, dict) else {}


def head(document: str) -> dict[str, Any]:
    """Return ``apiVersion``, ``kind`` and ``metadata`` of a document, without parsing the rest: many are long."""
    lines, within = [], False
    for line in document.splitlines():
        # A line that begins with anything but a space, a comment or a list's dash begins a field of the top.
        if line[:1] not in ("", " ", "\t", "#", "-"):
            within = line.startswith(("apiVersion:", "kind:", "metadata:"))
        if within:
            lines.append(line)
    short = parsed("\n".join(lines))
    return short if short.get("kind") and isinstance(short.get("metadata"), dict) else parsed(document)


def _answered(body: Mapping[str, Any], answering: Answering) -> dict[str, Any] | None:
    """Return the object with its webhooks sent to the answering processes; None when nothing is left."""
    if body["kind"] == "APIService":
        return None if (body.get("spec") or {}).get("service") else dict(body)
    webhooks = [
        {**webhook, "clientConfig": config}
        for webhook in body.get("webhooks") or []
        if (config := _client_config(webhook.get("clientConfig") or {}, answering)) is not None
    ]
    return {**body, "webhooks": webhooks} if webhooks else None


def _client_config(config: Mapping[str, Any], answering: Answering) -> dict[str, Any] | None:
    service = config.get("service")
    if not service:
        return dict(config)
    process = answering.get(f"{service.get('namespace')}/{service.get('name')}")
    if process is None:
        return None
    return {"url": f"{process['url']}/{service.get('path', '').lstrip('/')}", "caBundle": process["caBundle"]}


def _webhooks(body: Mapping[str, Any]) -> set[str]:
    return {str(webhook["name"]) for webhook in body.get("webhooks") or []}


if __name__ == "__main__":
    main()
