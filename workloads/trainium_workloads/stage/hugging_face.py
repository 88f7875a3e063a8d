"""Files of a data set or a model on the Hugging Face Hub, by its HTTP API.

``GET /api/datasets/<name>/revision/<rev>`` has the commit; ``GET /api/datasets/<name>/tree/<commit>?recursive=true``
its files, in pages (header ``Link``), each with ``size`` and ``oid``: git's blob, or for a large file ``lfs.oid``, its
SHA-256. ``GET /datasets/<name>/resolve/<commit>/<path>`` redirects to the bytes.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from trainium_workloads.stage import web as webs
from trainium_workloads.stage.checksums import Checksum
from trainium_workloads.stage.files import Access, File, Listing, StageError, as_expected, safe_path
from trainium_workloads.stage.web import Web

HUB = "https://huggingface.co"

_SOURCE = re.compile(
    r"hf://(?P<kind>datasets/|models/)?(?P<name>(?!datasets/|models/)[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?(?:/(?P<below>.+?)/?)?"
)
_NEXT = re.compile(r'<([^>]+)>\s*;[^,]*\brel="?next"?')


def list_files(source: str, web: Web, environment: Mapping[str, str] = os.environ) -> Listing:
    """Return the files of one commit.

    Args:
        source: ``hf://datasets/ORG/NAME``, with ``@revision`` and ``/directory or file`` if wanted; ``hf://ORG/NAME``
            is a model. A revision with a slash is written with ``%2F``.
        web: connections.
        environment: ``HF_TOKEN`` for private and gated repositories; ``HF_ENDPOINT`` for a mirror.

    Raises:
        StageError: no such repository or revision, or no right to it.
        Interrupted: the Hub does not answer.
    """
    found = _SOURCE.fullmatch(source)
    if not found:
        raise StageError(
            f"{source} is none of the Hub's: hf://datasets/<organization>/<name>[@<revision>][/<directory>]"
        )
    repository = _Repository(source, found["kind"] or "models/", found["name"], web, environment)
    commit = repository.commit((found["revision"] or "main").replace("%2F", "/"))
    files = tuple(repository.files(commit, found["below"] or ""))
    if not files:
        raise StageError(f"{source} holds no files" + (f" below {found['below']}" if found["below"] else ""))
    return Listing(files, commit)


class _Repository(Access):
    """One repository of the Hub."""

    def __init__(self, source: str, kind: str, name: str, web: Web, environment: Mapping[str, str]) -> None:
        self._source = source
        self._token = environment.get("HF_TOKEN", "").strip()
        self._web = web
        endpoint = environment.get("HF_ENDPOINT", HUB).rstrip("/")
        self._api = f"{endpoint}/api/{kind}{name}"
        self._files = f"{endpoint}/{kind if kind == 'datasets/' else ''}{name}/resolve"

    def headers(self, method: str, url: str) -> dict[str, str]:
        """See :meth:`Access.headers`."""
        del method, url
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def commit(self, revision: str) -> str:
        """Return the commit of a branch, a tag or the beginning of a commit."""
        data, _ = self._ask(f"{self._api}/revision/{quote(revision, safe='')}", f"revision {revision!r}")
        with as_expected(f"{self._api}: the commit of {revision!r}"):
            return str(data["sha"])

    def files(self, commit: str, below: str) -> Iterator[File]:
        """Yield all files of a commit, or of a directory in it, or one file."""
        after = f"{self._api}/tree/{commit}?recursive=true"
        while after:
            entries, after = self._ask(after, "its list of files")
            with as_expected(f"{self._api}: the list of files"):
                yield from (found for each in entries if (found := self._file(each, commit, below)) is not None)

    def _file(self, entry: Mapping[str, Any], commit: str, below: str) -> File | None:
        path = entry["path"]
        if entry["type"] != "file" or not (not below or path == below or path.startswith(f"{below}/")):
            return None
        inside = path.rpartition("/")[2] if path == below else path.removeprefix(f"{below}/" if below else "")
        large = entry.get("lfs")
        return File(
            safe_path(inside, self._source),
            f"{self._files}/{commit}/{quote(path)}",
            int((large or entry)["size"]),
            Checksum("sha256", str(large["oid"])) if large else Checksum("git", str(entry["oid"])),
            access=self,
        )

    def _ask(self, url: str, what: str) -> tuple[Any, str]:
        """Return the JSON of one page, and the URL of the next."""
        status, headers, body = webs.text(self._web, url, self.headers)
        if status in (401, 403):
            # The Hub answers 401 for a missing repository, too, so as not to reveal private ones.
            hint = (
                "its token may not read it"
                if self._token
                else "a private or gated one needs a token: trn secret hugging-face"
            )
            raise StageError(f"{self._source}: {what} is refused ({status}); there is no such repository, or {hint}")
        if status == 404:
            raise StageError(f"{self._source}: {what} is not there")
        try:
            if status != 200:
                raise ValueError(f"status {status}")
            data = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise StageError(f"{url} does not answer as the Hub does: {error}") from None
        following = _NEXT.search(headers.get("link", ""))
        return data, following[1] if following else ""
