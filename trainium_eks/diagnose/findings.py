"""Findings of faults of the catalogue, with remedies that find their objects."""

import re
from collections.abc import Iterable

from trainium_eks.diagnose.reason import Reason, shortened
from trainium_eks.model.finding import Finding, failed
from trainium_eks.observe.faults.catalogue import BY_NAME, in_message
from trainium_eks.observe.faults.fault import Speaker

_COMMAND = re.compile(r"\btrn (logs|status|cancel) (?!-)[\w.-]++(?! --namespace)(?P<all> --all)?")

FAULTS = "faults"
"""Section of the faults that no check looks for."""


def found(fault: str, about: str, sentence: str, **names: object) -> Finding:
    """Return the finding of a fault, with the remedy of the catalogue and its names of objects.

    The name ``rank`` is the rank of the node whose log was read; None outside a gang.
    """
    remedy = _placed(BY_NAME[fault].mend(**names), str(names.get("namespace") or ""), names.get("rank"))
    return _failure(fault, about, " ".join(sentence.split()), remedy)


def of_reason(reason: Reason, about: str, namespace: str) -> Finding:
    """Return the finding that an explanation of something in this namespace is."""
    return _failure(reason.fault, about, reason.sentence, _placed(reason.fix, namespace))


def _failure(fault: str, about: str, sentence: str, fix: str) -> Finding:
    id_ = f"{FAULTS}/{fault}/{about.replace(' ', '-')}"
    return failed(id_, about, shortened(sentence), fix, fault=fault, cause=BY_NAME[fault].cause)


def _placed(remedy: str, namespace: str, rank: object = None) -> str:
    """Return the remedy with commands that find the job in its namespace, and its log on the node of that rank."""

    def placed(found: re.Match[str]) -> str:
        node = f" --node {rank}" if rank is not None and found[1] == "logs" and not found["all"] else ""
        return f"{found[0]}{node} --namespace {namespace}"

    return _COMMAND.sub(placed, remedy) if namespace else remedy


def unreachable(error: Exception, stack: str) -> Finding:
    """Return the finding of a cluster that cannot be asked, by the words of the error."""
    known = in_message(str(error), Speaker.API)
    fault = known.name if known else "api-unreachable"
    return found(fault, f"cluster of {stack or 'the outputs'}", str(error))


def unique(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings in their order, each fault of an object once."""
    told = {(each.fault, each.subject) if each.fault else (each.id,): each for each in reversed([*findings])}
    return tuple(told.values())[::-1]
