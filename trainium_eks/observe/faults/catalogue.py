"""All faults: found by name, and by the words of a log or of a message."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from trainium_eks.model.validation.parsing import read_table
from trainium_eks.observe.faults.fault import Fault, Speaker, first_in


def _read(file: str) -> Iterator[Fault]:
    """Yield the faults of a file; an expression may go on in the next line, after a bar."""
    for name, fields in read_table(Path(__file__).parent / file).items():
        told: dict[str, str] = {key: fields.pop(key) for key in [*fields] if key in {*Speaker}}
        says = {Speaker(key): each.replace("| ", "|") for key, each in told.items()}
        yield Fault(name, **fields, says=says)


FAULTS: tuple[Fault, ...] = (*_read("cluster.yaml"), *_read("job.yaml"))
BY_NAME = {fault.name: fault for fault in FAULTS}


def in_log(lines: Iterable[str]) -> tuple[Fault, str] | None:
    """Return the fault in the last lines of a log, and the line that names it; None where no line is known."""
    return first_in(FAULTS, Speaker.PROGRAM, lines)


def in_message(message: str, speaker: Speaker) -> Fault | None:
    """Return the fault in the message of an event, of a waiting container, or of a failed request; None for others."""
    found = first_in(FAULTS, speaker, [message])
    return found[0] if found else None


def of_alert(alert: str) -> list[Fault]:
    """Return the faults that the page of an alert includes."""
    return [fault for fault in FAULTS if fault.alert == alert]
