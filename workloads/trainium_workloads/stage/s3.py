"""Files of an S3 bucket: asked for without credentials first, as a public bucket wants, then signed.

A signed request to another account's public bucket is refused where the signer's own policy does not name the bucket,
and the role of a team names its own alone: so signing comes second.
"""

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from urllib.parse import quote, urlencode, urlsplit

from trainium_workloads.stage import web as webs
from trainium_workloads.stage.checksums import Checksum, announced, number_of_parts
from trainium_workloads.stage.files import Access, File, Listing, StageError, safe_path
from trainium_workloads.stage.sigv4 import CredentialSource, sign
from trainium_workloads.stage.web import Web

_CHECKSUMS = {"x-amz-checksum-mode": "ENABLED"}
"""Asks for the object's checksums in the answer's headers; without it S3 keeps them to itself."""


def list_files(source: str, web: Web, environment: Mapping[str, str] = os.environ) -> Listing:
    """Return the object, or all objects below a prefix.

    Args:
        source: ``s3://bucket/key`` or ``s3://bucket/prefix/``; a key that is an object is taken as that.
        web: connections.
        environment: credentials, ``AWS_ENDPOINT_URL_S3`` and ``AWS_ENDPOINT_URL``.

    Raises:
        StageError: no such bucket, nothing there, or no right to it.
        Interrupted: S3 does not answer.
    """
    parts = urlsplit(source, allow_fragments=False)
    name, prefix = parts.netloc, parts.path.lstrip("/") + (f"?{parts.query}" if parts.query else "")
    if not name:
        raise StageError(f"{source} names no bucket: s3://<bucket>/<key or prefix>")
    bucket = _Bucket(name, web, environment)
    if prefix and not prefix.endswith("/"):
        single = bucket.object(prefix)
        if single is not None:
            return Listing((single,))
        prefix += "/"
    found = tuple(bucket.below(prefix))
    if not found:
        raise StageError(f"there is nothing at {source}: no object of this key, and none below it")
    return Listing(found)


class _Bucket(Access):
    """Access to one bucket."""

    def __init__(self, name: str, web: Web, environment: Mapping[str, str]) -> None:
        self._name = name
        self._web = web
        self._credentials = CredentialSource(environment)
        self._signs = False
        endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL", "")
        if endpoint:
            self._region = environment.get("AWS_REGION") or "us-east-1"
            self._root = f"{endpoint.rstrip('/')}/{name}"
        else:
            self._region = self._find_region(environment.get("AWS_REGION", ""))
            self._root = _address(name, self._region)

    def headers(self, method: str, url: str) -> dict[str, str]:
        """See :meth:`Access.headers`."""
        credentials = self._credentials.get() if self._signs else None
        if credentials is None:
            return dict(_CHECKSUMS)
        return sign(method, url, _CHECKSUMS, credentials, self._region)

    def checksum(self, file: File) -> Checksum | None:
        """See :meth:`Access.checksum`. For an object in several parts: its ETag, if the parts' size is known."""
        _, headers = self._head(file.url)
        known = announced(headers)
        etag = headers.get("etag", "").strip('"')
        if known is not None or not number_of_parts(etag):
            return known
        if headers.get("x-amz-server-side-encryption", "AES256") != "AES256":
            return None
        status, first = self._head(f"{file.url}?partNumber=1")
        size = first.get("content-length", "")
        if status not in (200, 206) or not size.isdigit() or file.size is None:
            return None
        part_size, parts = int(size), number_of_parts(etag)
        # Parts may differ in size (few tools make such); then the ETag cannot be computed from here.
        even = part_size and -(-file.size // part_size) == parts
        return Checksum("parts", etag, part_size) if even else None

    def object(self, key: str) -> File | None:
        """Return the object of this key; None without one."""
        url = self._url(key)
        status, headers = self._head(url)
        if status == 403 and self._may_sign():
            status, headers = self._head(url)
        # Without the right to list a bucket, a missing key gives 403, too; the list then shows the reason.
        if status != 200:
            return None
        path = safe_path(key.rpartition("/")[2], f"s3://{self._name}")
        etag = headers.get("etag", "").strip('"')
        return File(path, url, int(headers["content-length"]), announced(headers), etag, self)

    def below(self, prefix: str) -> Iterator[File]:
        """Yield all objects below a prefix, without the empty objects by which consoles show a directory."""
        after = ""
        while True:
            page = self._page(prefix, after)
            space = page.tag.partition("}")[0] + "}" if page.tag.startswith("{") else ""
            for each in page.iter(f"{space}Contents"):
                key = each.findtext(f"{space}Key", "")
                size = int(each.findtext(f"{space}Size", "0"))
                if key.endswith("/") and not size:
                    continue
                path = safe_path(key.removeprefix(prefix), f"s3://{self._name}/{prefix}")
                etag = each.findtext(f"{space}ETag", "").strip('"')
                yield File(path, self._url(key), size, None, etag, self)
            after = page.findtext(f"{space}NextContinuationToken", "")
            if not after:
                return

    def _page(self, prefix: str, after: str) -> ElementTree.Element:
        query = {"list-type": "2", "prefix": prefix, **({"continuation-token": after} if after else {})}
        url = f"{self._root}?{urlencode(query, quote_via=quote)}"
        status, _, body = webs.text(self._web, url, self.headers)
        if status == 403 and self._may_sign():
            status, _, body = webs.text(self._web, url, self.headers)
        if status != 200:
            raise StageError(self._refused(status, body, prefix))
        try:
            return ElementTree.fromstring(body)
        except ElementTree.ParseError as error:
            raise StageError(f"s3://{self._name} is listed as something other than XML: {error}") from None

    def _refused(self, status: int, body: str, prefix: str) -> str:
        what = f"s3://{self._name}/{prefix}"
        if status == 404:
            return f"there is no bucket {self._name}"
        if status == 403 and not self._signs:
            return f"{what} is not public, and here are no AWS credentials: the namespace has no role for S3"
        if status == 403:
            return (
                f"{what} is not public, and the namespace's role may not list it: a team's role reaches its own prefix "
                "of the stack's bucket and of the `data_bucket` in the stack's config"
            )
        return f"{what} cannot be listed: {status} {' '.join(body.split())[:200]}"

    def _may_sign(self) -> bool:
        """Sign requests from now on; return whether this is new and there are credentials."""
        if self._signs or self._credentials.get() is None:
            return False
        self._signs = True
        return True

    def _head(self, url: str) -> tuple[int, Mapping[str, str]]:
        with self._web.open("HEAD", url, self.headers) as answer:
            answer.read(1)
            return answer.status, answer.headers

    def _url(self, key: str) -> str:
        return f"{self._root}/{quote(key, safe='/-_.~')}"

    def _find_region(self, own: str) -> str:
        """Return the bucket's region, which S3 tells everybody, also in a refusal (API reference, HeadBucket)."""
        china = own.startswith("cn-")
        address = f"https://s3.{own}.amazonaws.com.cn/{self._name}" if china else _address(self._name, "us-east-1")
        with self._web.open("HEAD", address, lambda *_: {}) as answer:
            answer.read(1)
            region = answer.headers.get("x-amz-bucket-region", "")
            if answer.status == 404:
                raise StageError(f"there is no bucket {self._name}")
        return region or own or "us-east-1"


def _address(bucket: str, region: str) -> str:
    """Return the URL of a bucket. A name with dots fits no certificate and goes into the path."""
    host = f"s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")
    return f"https://{host}/{bucket}" if "." in bucket else f"https://{bucket}.{host}"
