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
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from trainium_eks import whole_file
from trainium_eks.local.toolchain import store, web
from trainium_eks.local.toolchain.tools import Platform, Tool
from trainium_eks.local.toolchain.web import RefusedError

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


class Registry:
    """The image of one tool, fetched with an anonymous token where the registry wants one."""

    def __init__(self, tool: Tool, say: Callable[[str], None], notes: Path) -> None:
        """``notes`` is a JSON file with the digests of the tags that were fetched; it outlives the programs."""
        self._tool = tool
        self._say = say
        self._notes = notes
        self._authorization = ""

    def fetch(self, where: Platform, to: Path) -> None:
        """Write the program for a platform to a file."""
        image = self._tool.image
        ours = {"os": where.system, "architecture": where.machine}
        try:
            listed = self._content("manifests", self._digest())["manifests"]
            digests = [_digest(each) for each in listed if ours.items() <= each.get("platform", {}).items()]
            if not digests:
                raise RefusedError(f"the image {image} has nothing for {where}")
            layers = [_digest(layer) for layer in self._content("manifests", digests[0])["layers"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RefusedError(f"{image} answers with another kind of image ({error!r})") from None
        # A program is copied into an image late, and the last layer that has it counts.
        if not any(self._unpacked(digest, to) for digest in reversed(layers)):
            raise RefusedError(f"{image} has no {self._tool.member} in its image {self._tool.reference}")

    def _digest(self) -> str:
        """Return the digest of the image for all platforms: of a tag, the one that it had the first time."""
        image, reference = self._tool.image, self._tool.reference
        if _DIGEST.fullmatch(reference):
            return reference
        name = f"{image.partition('://')[2].replace('/v2/', '/', 1)}:{reference}"
        notes = self._read_notes()
        known = notes.get(name, {}).get("digest", "")
        answer = self._get(f"{image}/manifests/{reference}", {"Accept": _MANIFESTS})
        digest = f"sha256:{sha256(answer).hexdigest()}"
        if known and known != digest:
            raise RefusedError(
                f"WRONG CHECKSUM: {name} was {known} the first time, and is {digest} now ({self._notes} holds "
                "the first; remove it if the project says that its image changed)"
            )
        if not known:
            self._say(f"{name} is {digest}: trusted because it is the first, and noted in {self._notes}")
            since = time.strftime("%Y-%m-%d", time.gmtime())
            content = json.dumps({**notes, name: {"digest": digest, "since": since}}, indent=2) + "\n"
            with store.writing(self._notes.parent):
                whole_file.write(self._notes, content, 0o644)
        return digest

    def _read_notes(self) -> dict[str, dict[str, str]]:
        try:
            notes: dict[str, dict[str, str]] = json.loads(self._notes.read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            # As if nothing was known would trust whatever the tag is now.
            raise RefusedError(f"{self._notes} cannot be read ({error}); remove it to trust the images anew") from None
        return notes

    def _content(self, kind: str, digest: str) -> dict[str, Any]:
        url = f"{self._tool.image}/{kind}/{digest}"
        answer = self._get(url, {"Accept": _MANIFESTS})
        actual = f"sha256:{sha256(answer).hexdigest()}"
        if actual != digest:
            raise RefusedError(f"WRONG CHECKSUM: {url} has {actual}")
        content: dict[str, Any] = json.loads(answer)
        return content

    def _unpacked(self, digest: str, to: Path) -> bool:
        """Return whether the layer has the program, which is then in the file."""
        raw = to.with_suffix(".layer")
        url = f"{self._tool.image}/blobs/{digest}"
        actual = self._authorized(lambda: web.save(url, raw, self._authorization))
        if f"sha256:{actual}" != digest:
            raise RefusedError(f"WRONG CHECKSUM: {url} has sha256 {actual}")
        member = PurePosixPath(self._tool.member)
        try:
            with store.writing(to.parent), tarfile.open(raw) as layer:
                for entry in layer:
                    # Names are written ``a``, ``./a`` or ``/a``.
                    if PurePosixPath("/", entry.name) != PurePosixPath("/", member):
                        continue
                    source = layer.extractfile(entry) if entry.isfile() else None
                    if source is None:
                        raise RefusedError(f"{member} is no file in its image")
                    with source, to.open("wb") as sink:
                        shutil.copyfileobj(source, sink)
                    return True
        except (tarfile.TarError, zlib.error, EOFError) as error:
            raise RefusedError(f"{url} is no layer that can be read here: {error}") from None
        finally:
            raw.unlink(missing_ok=True)
        return False

    # --- Tokens ---------------------------------------------------------------------------------------------------

    def _get(self, url: str, headers: dict[str, str]) -> bytes:
        return self._authorized(lambda: web.get(url, headers, self._authorization))

    def _authorized(self, ask: Callable[[], _T]) -> _T:
        """Ask; where the registry demands a token, get an anonymous one for all requests and ask again."""
        try:
            return ask()
        except RefusedError as error:
            if error.code == 429:
                raise RefusedError(
                    f"{error}: the registry's limit for anonymous downloads; it lasts some hours"
                ) from None
            if error.code != 401 or self._authorization or not error.challenge:
                raise
            self._authorization = f"Bearer {_token(error.challenge, self._tool.image)}"
        return self._authorized(ask)


def _token(challenge: str, image: str) -> str:
    """Return an anonymous token, from where the challenge (``Bearer realm="…",service="…",scope="…"``) says."""
    scheme, _, rest = challenge.partition(" ")
    told = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    realm = told.pop("realm", "")
    # Whoever answers in the place of a registry must not lower the protection, nor lead to a file of this machine.
    allowed = ("https",) if image.startswith("https:") else ("http", "https")
    if scheme.lower() != "bearer" or urllib.parse.urlsplit(realm).scheme not in allowed:
        raise RefusedError(f"{image} wants a login ({scheme or 'none named'}), not an anonymous token")
    asked = {name: told[name] for name in ("service", "scope") if name in told}
    try:
        answer = json.loads(web.get(f"{realm}?{urllib.parse.urlencode(asked)}"))
        token = answer.get("token") or answer.get("access_token")
    except (ValueError, AttributeError):
        token = None
    if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
        raise RefusedError(f"{realm} gave no token for {image}")
    return token


def _digest(descriptor: Any) -> str:
    digest = str(descriptor["digest"])
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"not a sha256: {digest}")
    return digest
