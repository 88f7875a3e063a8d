"""Exporters that a local cloud cannot have, by pages that they gave: served as text, each node's by itself.

A page (tests/exporter_pages) is in its exporter's own format and cut down to one core, GPU or interface; its counters
go on counting.
"""

import contextlib
import re
import time
from pathlib import Path

from web_server import Handler, serving

FOLDER = Path(__file__).with_name("exporter_pages")

COUNTED_SECONDS = 3600.0
"""How long the counters on the pages had been counting."""

SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:]\w*)(?P<labels>\{.*\})? (?P<value>\S+)")


def recorded(exporter):
    """The page of an exporter, counting."""
    lines = (FOLDER / f"{exporter}.prom").read_text().splitlines()
    begun = time.time()
    return lambda: "".join(f"{line}\n" for line in _counted(lines, time.time() - begun + COUNTED_SECONDS))


def _counted(lines, seconds):
    """The lines after a time, with counters that grow at the same rate."""
    counters = {line.split()[2] for line in lines if line.startswith("# TYPE") and line.endswith(" counter")}
    for line in lines:
        sample = SAMPLE.fullmatch(line)
        if sample and sample["name"] in counters:
            value = float(sample["value"]) * seconds / COUNTED_SECONDS
            yield f"{sample['name']}{sample['labels'] or ''} {value!r}"
        else:
            yield line


@contextlib.contextmanager
def served(pages):
    """Serves pages by their path; the port."""

    class Page(Handler):
        protocol_version = "HTTP/1.0"

        def do_GET(self):  # noqa: N802 - the name that the server calls
            page = pages.get(self.path)
            body = page().encode() if page else b""
            headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8", "Content-Length": len(body)}
            # Prometheus is gone at the end of a test.
            with contextlib.suppress(ConnectionError):
                self.answer(200 if page else 404, headers, body)

    with serving(Page) as url:
        yield int(url.rpartition(":")[2])
