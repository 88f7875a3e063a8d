"""Files of a data set or a model on the Hugging Face Hub, by huggingface_hub."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

# Before the import, which reads them: progress is the copier's, and nothing is written outside the destination.
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from huggingface_hub import HfApi, RepoFile
from huggingface_hub.errors import (
    FileMetadataError,
    HfHubHTTPError,
    HTTPError,
    LocalEntryNotFoundError,
    RevisionNotFoundError,
    XetDownloadError,
)

from trainium_workloads.stage.files import CopyInterruptedError, Fetched, File, StageError

_SOURCE = re.compile(
    r"hf://(?P<kind>datasets/|models/)?(?P<name>(?!datasets/|models/)[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?(?:/(?P<below>.+?)/?)?"
)

_T = TypeVar("_T")


class Hub:
    """All files of one commit: ``hf://datasets/ORG/NAME``, with ``@revision`` (a slash in it is ``%2F``) and
    ``/directory or file`` if wanted; ``hf://ORG/NAME`` is a model.

    ``HF_TOKEN`` opens private and gated repositories; ``HF_ENDPOINT`` names a mirror.
    """

    def __init__(self, source: str) -> None:
        found = _SOURCE.fullmatch(source)
        if not found:
            raise StageError(
                f"{source} is none of the Hub's: hf://datasets/<organization>/<name>[@<revision>][/<directory>]"
            )
        self._source, self._below = source, found["below"] or ""
        kind = "dataset" if found["kind"] == "datasets/" else "model"
        self._repository = {"repo_id": found["name"], "repo_type": kind}
        self._token = os.environ.get("HF_TOKEN", "").strip() or False
        self._api = HfApi(endpoint=os.environ.get("HF_ENDPOINT", "").rstrip("/") or None, token=self._token)
        self.revision = (found["revision"] or "main").replace("%2F", "/")

    def list_files(self) -> Iterator[File]:
        """See :class:`trainium_workloads.stage.files.Source`."""
        self.revision = str(self._ask(lambda: self._api.repo_info(**self._repository, revision=self.revision)).sha)
        found = self._ask(
            lambda: list(self._api.list_repo_tree(**self._repository, revision=self.revision, recursive=True))
        )
        # A directory's files are named below it, a file alone by its own name.
        start = f"{self._below}/" if self._below else ""
        above = self._below.rpartition("/")[0] + "/"
        entries = [entry for entry in found if isinstance(entry, RepoFile)]
        chosen = {entry.path.removeprefix(start): entry for entry in entries if entry.path.startswith(start)}
        chosen |= {entry.path.removeprefix(above): entry for entry in entries if entry.path == self._below}
        if not chosen:
            raise StageError(f"{self._source} holds no files" + (f" below {self._below}" if self._below else ""))
        for path, entry in chosen.items():
            checksum = f"sha256:{entry.lfs.sha256}" if entry.lfs else f"git:{entry.blob_id}"
            yield File(path, entry.path, entry.size, self.revision, checksum)

    def fetch(self, file: File, part: Path) -> Fetched:
        """See :class:`trainium_workloads.stage.files.Source`."""
        # The library keeps its notes beside the file.
        scratch = part.with_name(f"{part.name}.hub")
        options = {**self._repository, "revision": self.revision, "local_dir": scratch}
        os.replace(self._ask(lambda: self._api.hf_hub_download(filename=file.where, **options)), part)
        shutil.rmtree(scratch)
        return Fetched()

    def _ask(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except RevisionNotFoundError:
            raise StageError(f"{self._source}: revision {self.revision!r} is not there") from None
        except (LocalEntryNotFoundError, FileMetadataError) as error:  # the Hub did not answer as it should
            raise CopyInterruptedError(f"{self._source}: {error.__cause__ or error}") from None
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status >= 500 or status in (408, 429):
                raise CopyInterruptedError(f"{self._source}: {status} {error.server_message or ''}") from None
            # The Hub answers 401 for a missing repository, too, so as not to reveal private ones.
            hint = "a private or gated one needs a token: trn secret hugging-face"
            if self._token:
                hint = "its token may not read it (a gated one: accept its terms on the Hub first)"
            raise StageError(f"{self._source} is refused ({status}): there is no such repository, or {hint}") from None
        except (HTTPError, OSError, RuntimeError, XetDownloadError) as error:
            if isinstance(error, OSError) and error.errno:  # of the disk
                raise
            raise CopyInterruptedError(f"{self._source}: {error}") from None
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise StageError(f"{self._source}: the server does not answer as the Hub does: {error!r}") from None
