"""Programs out of container images, by the registries' protocol (OCI distribution), without a container engine.

A digest is the checksum of all that it names: index, image, layers. An image that is known by a tag alone is trusted
the first time: its digest is noted, and another one under the same tag is refused from then on.
"""

import json
import re
import shutil
import tarfile
import time
import urllib.parse
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from trainium_eks.local.toolchain import store, web
from trainium_eks.local.toolchain.tools import Platform
from trainium_eks.local.toolchain.web import DownloadRefusedError

_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_T = TypeVar("_T")

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_GONE, _ALL_GONE = ".wh.", ".wh..wh..opq"
"""How a layer says that a file, or all of a directory, of the layers below is not there any more."""


@dataclass(frozen=True)
class Image:
    """A container image that has a program."""

    repository: str
    """``https://<registry>/v2/<name>``."""
    reference: str
    """Digest or tag of the image for all platforms, or for one."""
    platform: Platform
    member: str
    """Where the program lies in it: ``usr/local/bin/kwok``."""


class Notes:
    """Digests of the tags that were fetched, in a file that outlives the programs.

    Args:
        file: JSON, made when it is needed.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def digest(self, name: str) -> str:
        """What the tag was the first time; empty when it was never fetched."""
        note = self._read().get(name)
        return str(note.get("digest", "")) if isinstance(note, dict) else ""

    def note(self, name: str, digest: str) -> None:
        """Keeps a digest.

        Raises:
            store.Unwritable: the file cannot be written.
        """
        since = time.strftime("%Y-%m-%d", time.gmtime())
        content = json.dumps({**self._read(), name: {"digest": digest, "since": since}}, indent=2) + "\n"
        part = self.file.with_suffix(".part")
        try:
            part.write_text(content)
            part.replace(self.file)
        except OSError as error:
            raise store.unwritable(self.file.parent, error) from error

    def _read(self) -> dict[str, Any]:
        try:
            notes = json.loads(self.file.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            # As if nothing was known would trust whatever the tag is now.
            raise DownloadRefusedError(
                f"{self.file} cannot be read ({error}); remove it to trust the images anew"
            ) from None
        return notes if isinstance(notes, dict) else {}


class Registry:
    """Fetches from one repository, with an anonymous token where the registry wants one.

    Args:
        image: what from.
        save: downloads an address into a file, with an ``Authorization``; gives the SHA-256 of what came.
        say: told what must not be lost.
        notes: of the tags that were fetched before.
    """

    def __init__(
        self, image: Image, save: Callable[[str, Path, str], str], say: Callable[[str], None], notes: Notes
    ) -> None:
        self._image = image
        self._save = save
        self._say = say
        self._notes = notes
        self._authorization = ""

    def fetch(self, to: Path) -> None:
        """Puts the program into a file.

        Raises:
            Refused: the image does not have it, or something has another checksum.
            web.Unreachable: the registry does not answer.
            store.Unwritable: a file cannot be written.
        """
        try:
            layers = [_digest(layer) for layer in self._manifest()["layers"]]
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise DownloadRefusedError(
                f"{self._image.repository} answers with another kind of image ({error!r})"
            ) from None
        # A program is copied into an image late, and whatever a later layer says of a path holds.
        for digest in reversed(layers):
            if self._unpacked(digest, to):
                return
        raise DownloadRefusedError(
            f"{self._image.repository} has no {self._image.member} in its image {self._image.reference}"
        )

    def _manifest(self) -> Any:
        """The image's for this platform, by way of digests only."""
        ours = {"os": self._image.platform.system, "architecture": self._image.platform.architecture}
        found = self._content("manifests", self._trusted())
        if "manifests" not in found:
            is_for = self._content("blobs", _digest(found["config"]))
            if not ours.items() <= is_for.items():
                raise self._not_for(ours)
            return found
        digests = [_digest(each) for each in found["manifests"] if ours.items() <= each.get("platform", {}).items()]
        if not digests:
            raise self._not_for(ours)
        return self._content("manifests", digests[0])

    def _not_for(self, platform: dict[str, str]) -> DownloadRefusedError:
        where = f"{platform['os']}-{platform['architecture']}"
        return DownloadRefusedError(f"the image {self._image.repository} has nothing for {where}")

    def _trusted(self) -> str:
        """The digest of a tag: the one that it had the first time."""
        reference = self._image.reference
        if _DIGEST.fullmatch(reference):
            return reference
        name = f"{self._image.repository.partition('://')[2].replace('/v2/', '/', 1)}:{reference}"
        known = self._notes.digest(name)
        answer = self._get(f"{self._image.repository}/manifests/{reference}", {"Accept": _MANIFESTS})
        digest = f"sha256:{sha256(answer).hexdigest()}"
        if known and known != digest:
            raise DownloadRefusedError(
                f"WRONG CHECKSUM: {name} was {known} the first time, and is {digest} now ({self._notes.file} holds "
                "the first; remove it if the project says that its image changed)"
            )
        if not known:
            self._say(f"{name} is {digest}: trusted because it is the first, and noted in {self._notes.file}")
            self._notes.note(name, digest)
        return digest

    def _content(self, kind: str, digest: str) -> dict[str, Any]:
        url = f"{self._image.repository}/{kind}/{digest}"
        answer = self._get(url, {"Accept": _MANIFESTS} if kind == "manifests" else {})
        actual = f"sha256:{sha256(answer).hexdigest()}"
        if actual != digest:
            raise DownloadRefusedError(f"WRONG CHECKSUM: {url} has {actual}")
        content: dict[str, Any] = json.loads(answer)
        return content

    def _unpacked(self, digest: str, to: Path) -> bool:
        """Whether the layer has the program, which is then in the file."""
        raw = to.with_suffix(".layer")
        url = f"{self._image.repository}/blobs/{digest}"
        actual = self._authorized(lambda: self._save(url, raw, self._authorization))
        if f"sha256:{actual}" != digest:
            raw.unlink()
            raise DownloadRefusedError(f"WRONG CHECKSUM: {url} has sha256 {actual}")
        try:
            with tarfile.open(raw) as layer:
                return _extracted(layer, PurePosixPath(self._image.member), to)
        except (tarfile.TarError, zlib.error, EOFError) as error:
            raise DownloadRefusedError(f"{url} is no layer that can be read here: {error}") from None
        except OSError as error:
            raise store.unwritable(to.parent, error) from error
        finally:
            raw.unlink(missing_ok=True)

    # --- Tokens ---------------------------------------------------------------------------------------------------

    def _get(self, url: str, headers: dict[str, str]) -> bytes:
        return self._authorized(lambda: web.get(url, headers, self._authorization))

    def _authorized(self, ask: Callable[[], _T]) -> _T:
        """Asks; where the registry answers that it wants a token, gets one for everybody and asks again."""
        try:
            return ask()
        except DownloadRefusedError as error:
            if error.code == 429:
                raise DownloadRefusedError(
                    f"{error}: the registry's limit for anonymous downloads; it lasts some hours"
                ) from None
            if error.code != 401 or self._authorization or not error.challenge:
                raise
            self._authorization = f"Bearer {_token(error.challenge, self._image.repository)}"
        return self._authorized(ask)


def _token(challenge: str, repository: str) -> str:
    """An anonymous token, from where the challenge (``Bearer realm="…",service="…",scope="…"``) says."""
    scheme, _, rest = challenge.partition(" ")
    told = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    realm = told.pop("realm", "")
    # Whoever answers in the place of a registry must not lower the protection, nor lead to a file of this machine.
    allowed = ("https",) if repository.startswith("https:") else ("http", "https")
    if scheme.lower() != "bearer" or urllib.parse.urlsplit(realm).scheme not in allowed:
        raise DownloadRefusedError(f"{repository} wants a login ({scheme or 'none named'}), not an anonymous token")
    asked = {name: told[name] for name in ("service", "scope") if name in told}
    try:
        answer = json.loads(web.get(f"{realm}?{urllib.parse.urlencode(asked)}"))
        token = answer.get("token") or answer.get("access_token")
    except (ValueError, AttributeError):
        token = None
    if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
        raise DownloadRefusedError(f"{realm} gave no token for {repository}")
    return token


def _digest(descriptor: Any) -> str:
    digest = str(descriptor["digest"])
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"not a sha256: {digest}")
    return digest


def _extracted(layer: tarfile.TarFile, member: PurePosixPath, to: Path) -> bool:
    """Whether a layer has a file, which is then extracted.

    Raises:
        Refused: the layer takes it away, or has something else in its place.
    """
    taken_away = False
    for entry in layer:
        # Names are written ``a``, ``./a`` or ``/a``.
        path = PurePosixPath(*[part for part in PurePosixPath(entry.name).parts if part not in ("/", ".")])
        if path == member:
            if not entry.isfile():
                raise DownloadRefusedError(f"{member} is no file in its image")
            source = layer.extractfile(entry)
            assert source is not None, "a regular file has content"
            with source, to.open("wb") as sink:
                shutil.copyfileobj(source, sink)
            return True
        if path.name == _ALL_GONE:
            taken_away |= path.parent in member.parents
        elif path.name.startswith(_GONE):
            taken_away |= path.with_name(path.name.removeprefix(_GONE)) in (member, *member.parents)
    if taken_away:
        raise DownloadRefusedError(f"{member} is taken away again in its image")
    return False
