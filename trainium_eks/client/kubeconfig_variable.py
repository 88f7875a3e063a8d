"""The variable ``KUBECONFIG``, read as kubectl reads it: one file, or several that are merged."""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainium_eks.client.failure import UsageError
from trainium_eks.model.validation.parsing import parse_yaml

VARIABLE = "KUBECONFIG"

_LISTS = {"clusters": "cluster", "users": "user", "contexts": "context"}
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Keys of paths, which are relative to their file."""


def list_files() -> tuple[Path, ...]:
    """Return the existing files that the variable names; none for an unset variable."""
    files = [Path(each).expanduser() for each in os.environ.get(VARIABLE, "").split(os.pathsep) if each]
    there = tuple(each for each in files if each.is_file())
    if files and not there:
        shown = ", ".join(map(str, files))
        raise UsageError(f"{VARIABLE} names {shown}, which is not there: correct it, or unset {VARIABLE}")
    return there


def merge_files(files: Sequence[Path]) -> str:
    """Return one kubeconfig made of several as JSON: of each name and of the current context the first one counts."""
    made: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", **{key: [] for key in _LISTS}, "current-context": ""}
    for file in files:
        try:
            found = parse_yaml(file.read_text(encoding="utf-8")) or {}
            made["current-context"] = made["current-context"] or str(found.get("current-context") or "")
            for key, one in _LISTS.items():
                known = {each["name"] for each in made[key]}
                made[key] += [_absolute(each, one, file) for each in found.get(key) or () if each["name"] not in known]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{VARIABLE} names {file}, which is not a kubeconfig ({error}): correct it, or unset {VARIABLE}"
            raise UsageError(reason) from None
    return json.dumps(made)


def other_server(text: str, own: str) -> str:
    """Return the server of a kubeconfig if that is certainly not the server of another; else nothing.

    A tunnel has another address, and the same certificate authority. Where the own server is not known, nothing is
    certain.
    """
    ours, theirs = _cluster(own), _cluster(text)
    if not ours or not theirs or ours.get("server") == theirs.get("server"):
        return ""
    authority = _authority(theirs)
    return "" if authority and authority == _authority(ours) else str(theirs.get("server") or "no server")


def namespace_of(text: str) -> str:
    """Return the namespace of a kubeconfig's current context; empty where it names none."""
    return str(_context(text).get("namespace") or "")


def _absolute(entry: Mapping[str, Any], key: str, file: Path) -> dict[str, Any]:
    inside = dict(entry.get(key) or {})
    for each in _FILES:
        if inside.get(each):
            inside[each] = str(file.resolve().parent / str(inside[each]))
    return {**entry, key: inside}


def _context(text: str) -> Mapping[str, Any]:
    try:
        document = parse_yaml(text)
        return _one(document["contexts"], document["current-context"], "context")
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _cluster(text: str) -> Mapping[str, Any]:
    """Return the cluster of the current context, or an empty dictionary."""
    try:
        return _one(parse_yaml(text)["clusters"], _context(text)["cluster"], "cluster")
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _one(entries: Sequence[Mapping[str, Any]], name: object, key: str) -> Mapping[str, Any]:
    found = next((each[key] for each in entries if each["name"] == name), None)
    return found if isinstance(found, Mapping) else {}


def _authority(cluster: Mapping[str, Any]) -> bytes:
    try:
        data = cluster.get("certificate-authority-data")
        return base64.b64decode(str(data)) if data else Path(str(cluster["certificate-authority"])).read_bytes()
    except (OSError, ValueError, KeyError):
        return b""
