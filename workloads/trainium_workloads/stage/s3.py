"""Files of an S3 bucket, by boto3: asked for without credentials first, as a public bucket wants, then signed.

A signed request to another account's public bucket is refused where the signer's own policy does not name the bucket,
and the role of a team names its own alone: so signing comes second.
"""

import base64
import binascii
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import boto3  # type: ignore[import-untyped]
from botocore import UNSIGNED  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)

from trainium_workloads.stage.files import BUFFER, CopyInterruptedError, Fetched, File, StageError, measure

PIECE_BYTES = 16 * BUFFER
"""Size of the pieces in which a larger object is fetched."""
CUTS = 5
"""Connections of a piece that may end early."""

_T = TypeVar("_T")


class S3:
    """The object ``s3://bucket/key``, or all objects below ``s3://bucket/prefix/``.

    ``AWS_ENDPOINT_URL_S3`` names an S3-compatible store. Credentials are boto3's, of the environment or Pod Identity.
    """

    revision = ""

    def __init__(self, source: str, workers: int) -> None:
        parts = urlsplit(source, allow_fragments=False)
        self._bucket, self._key = parts.netloc, parts.path.lstrip("/") + (f"?{parts.query}" if parts.query else "")
        if not self._bucket:
            raise StageError(f"{source} names no bucket: s3://<bucket>/<key or prefix>")
        self._source, self._workers = source, workers
        self._pool, self._large = ThreadPoolExecutor(workers), list[Path]()
        self._connect(UNSIGNED)

    def _connect(self, signature: Any) -> None:
        self._is_signed = signature is not UNSIGNED
        own = "AWS_ENDPOINT_URL_S3" in os.environ or "AWS_ENDPOINT_URL" in os.environ
        config = Config(
            signature_version=signature,
            max_pool_connections=2 * self._workers,
            retries={"mode": "standard", "total_max_attempts": 4},
            s3={"addressing_style": "path"} if own else None,
            user_agent="trainium-eks",  # botocore would put its own together anew for each request
        )
        region = os.environ.get("AWS_REGION") or "us-east-1"
        self._client = boto3.Session().client("s3", region_name=region, config=config)

    def list_files(self) -> Iterator[File]:
        """See :class:`trainium_workloads.stage.files.Source`."""
        prefix = self._key
        if prefix and not prefix.endswith("/"):
            try:
                head = self._ask(lambda: self._client.head_object(Bucket=self._bucket, Key=prefix))
                return iter([self._file(prefix.rpartition("/")[2], prefix, head["ContentLength"], head["ETag"])])
            except StageError:
                # Without the right to list a bucket a missing key is refused, too: the list then shows the reason.
                prefix += "/"
        pages = self._ask(
            lambda: list(self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix))
        )
        # Consoles show a directory by an empty object.
        objects = [x for page in pages for x in page.get("Contents", ()) if x["Size"] or not x["Key"].endswith("/")]
        if not objects:
            raise StageError(f"there is nothing at {self._source}: no object of this key, and none below it")
        return (self._file(x["Key"].removeprefix(prefix), x["Key"], x["Size"], x["ETag"]) for x in objects)

    def _file(self, path: str, key: str, size: int, etag: str) -> File:
        return File(path, f"s3://{self._bucket}/{key}", size, etag)

    def fetch(self, file: File, part: Path) -> Fetched:
        """See :class:`trainium_workloads.stage.files.Source`. An object of several pieces begins anew after a kill."""
        key = file.where.removeprefix(f"s3://{self._bucket}/")
        same = {"Bucket": self._bucket, "Key": key, "IfMatch": file.version}

        def get() -> Fetched:
            size = file.size or 0
            ask = self._client.head_object if size > PIECE_BYTES else self._client.get_object
            answer = ask(**same, ChecksumMode="ENABLED")
            checksum = checksum_of(answer["ResponseMetadata"]["HTTPHeaders"])
            with part.open("wb") as out:
                for piece in answer["Body"].iter_chunks(BUFFER) if size <= PIECE_BYTES else ():
                    out.write(piece)
            if size <= PIECE_BYTES:
                return Fetched(checksum)
            kind = checksum.partition(":")[0] or "sha256"
            return Fetched(checksum, measure(part, kind, self._pieces(same, part, size)))

        return self._ask(get)

    def _pieces(self, same: dict[str, str], part: Path, size: int) -> Iterator[int]:
        """Write an object by pieces, several at once; yield the end of each in turn."""
        pending: deque[Future[int]] = deque()
        lock = threading.Lock()
        self._large.append(part)
        try:
            for start in range(0, size, PIECE_BYTES):
                pending.append(self._pool.submit(self._write, same, part, lock, start, min(start + PIECE_BYTES, size)))
                # Large objects share the workers. The second piece of each comes while the first is measured.
                while len(pending) > max(1, self._workers // len(self._large)):
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            self._large.remove(part)
            for each in pending:
                each.cancel()
            wait(pending)  # another try writes the same file

    def _write(self, same: dict[str, str], part: Path, lock: threading.Lock, start: int, end: int) -> int:
        """Write a piece of an object, again from where it is cut off; return its end."""
        with part.open("rb+") as out:
            out.seek(start)
            for left in reversed(range(CUTS)):
                try:
                    body = self._client.get_object(**same, Range=f"bytes={out.tell()}-{end - 1}")["Body"]
                    for piece in body.iter_chunks(BUFFER):
                        with lock:  # the kernel's own for a file spins
                            out.write(piece)
                except (IncompleteReadError, ReadTimeoutError, ResponseStreamingError):
                    if not left:
                        raise
                if out.tell() >= end:
                    return end
        raise CopyInterruptedError(f"{self._source} sends less of {same['Key']} than was asked for")

    def _ask(self, call: Callable[[], _T]) -> _T:
        """Return the answer to a request; sign all requests from the first refusal on, where there are credentials."""
        was_signed = self._is_signed
        try:
            return call()
        except ClientError as error:
            if was_signed or not _wants_signature(error) or boto3.Session().get_credentials() is None:
                raise self._translated(error) from None
        except BotoCoreError as error:
            raise CopyInterruptedError(f"{self._source}: {error}") from None
        self._connect(None)
        return self._ask(call)

    def _translated(self, error: ClientError) -> Exception:
        """Return the copier's error for one of S3."""
        status, code = error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
        text = error.response["Error"].get("Message", "")
        if status == 412:
            return CopyInterruptedError(f"{self._source} changed after it was listed")
        if status >= 500 or status == 429 or code in ("SlowDown", "RequestTimeout", "RequestTimeTooSkewed"):
            return CopyInterruptedError(f"{self._source}: {code}: {text}")
        if code == "NoSuchBucket" or (status == 404 and not self._key):
            return StageError(f"there is no bucket {self._bucket}")
        reason = f"cannot be read: {status} {code} {text}"
        if code == "InvalidObjectState":
            reason = f"holds an archived object, which must be restored first: {text}"
        elif "kms" in text.lower():
            reason = f"is encrypted with a KMS key that the namespace's role may not use: {text}"
        elif status == 403:
            reason = "is not public, and here are no AWS credentials: the namespace has no role for S3"
            if self._is_signed:
                reason = (
                    "is not public, and the namespace's role may not read it: a team's role reaches its own prefix of "
                    "the stack's bucket and of the `data_bucket` in the stack's config"
                )
        return StageError(f"{self._source} {reason}")


def _wants_signature(error: ClientError) -> bool:
    refused = error.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    return refused or "Signature Version 4" in error.response["Error"].get("Message", "")


def checksum_of(headers: Mapping[str, str]) -> str:
    """Return the checksum of the whole object in an answer's headers (lower case); empty without a trustworthy one.

    The ETag of an object that was uploaded in one part, and that no key of KMS or of a customer encrypts, is the MD5 of
    its bytes. ``x-amz-checksum-<name>`` is base64, of the whole object unless its type is ``COMPOSITE`` (user guide,
    "Checking object integrity").
    """
    if headers.get("x-amz-checksum-type", "FULL_OBJECT") == "FULL_OBJECT":
        for kind in ("sha256", "sha1"):
            try:
                if value := base64.b64decode(headers.get(f"x-amz-checksum-{kind}", ""), validate=True).hex():
                    return f"{kind}:{value}"
            except binascii.Error:  # of the parts' checksums: a dash and their number follow
                continue
    etag = headers.get("etag", "").strip('"')
    by_customer = "x-amz-server-side-encryption-customer-algorithm" in headers
    is_encrypted = by_customer or headers.get("x-amz-server-side-encryption", "AES256") != "AES256"
    return f"md5:{etag}" if re.fullmatch(r"[0-9a-f]{32}", etag) and not is_encrypted else ""
