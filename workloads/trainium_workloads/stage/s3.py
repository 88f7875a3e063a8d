"""Files of an S3 bucket, by boto3: asked for without credentials first, as a public bucket wants, then signed.

A signed request to another account's public bucket is refused where the signer's own policy does not name the bucket,
and the role of a team names its own alone: so signing comes second.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import boto3  # type: ignore[import-untyped]
from botocore import UNSIGNED  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
from s3transfer.exceptions import RetriesExceededError  # type: ignore[import-untyped]
from s3transfer.manager import TransferConfig, TransferManager  # type: ignore[import-untyped]
from s3transfer.subscribers import BaseSubscriber  # type: ignore[import-untyped]

from trainium_workloads.stage.files import (
    BUFFER,
    Changed,
    Checksum,
    File,
    Interrupted,
    StageError,
    announced,
    is_encrypted,
)

PIECE_BYTES = 16 * BUFFER
"""Size of the pieces in which a larger object is fetched."""

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
        self._is_signed = False
        self._connect(UNSIGNED)

    def _connect(self, signature: Any) -> None:
        own = "AWS_ENDPOINT_URL_S3" in os.environ or "AWS_ENDPOINT_URL" in os.environ
        config = Config(
            signature_version=signature,
            max_pool_connections=2 * self._workers,
            retries={"mode": "standard", "total_max_attempts": 4},
            s3={"addressing_style": "path"} if own else None,
        )
        region = os.environ.get("AWS_REGION") or "us-east-1"
        self._client = boto3.Session().client("s3", region_name=region, config=config)
        # A queue of 256 KiB pieces between the network and the disk.
        settings = TransferConfig(
            multipart_threshold=PIECE_BYTES,
            multipart_chunksize=PIECE_BYTES,
            max_request_concurrency=self._workers,
            max_io_queue_size=200,
        )
        self._manager = TransferManager(self._client, settings)

    def list_files(self) -> Iterator[File]:
        """See :class:`trainium_workloads.stage.files.Source`."""
        prefix = self._key
        if prefix and not prefix.endswith("/"):
            try:
                head = self._ask(lambda s3: s3.head_object(Bucket=self._bucket, Key=prefix))
                return iter([self._file(prefix.rpartition("/")[2], prefix, head["ContentLength"], head["ETag"])])
            except StageError:
                # Without the right to list a bucket a missing key is refused, too: the list then shows the reason.
                prefix += "/"
        pages = self._ask(
            lambda s3: list(s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix))
        )
        # Consoles show a directory by an empty object.
        objects = [x for page in pages for x in page.get("Contents", ()) if x["Size"] or not x["Key"].endswith("/")]
        if not objects:
            raise StageError(f"there is nothing at {self._source}: no object of this key, and none below it")
        return (self._file(x["Key"].removeprefix(prefix), x["Key"], x["Size"], x["ETag"]) for x in objects)

    def _file(self, path: str, key: str, size: int, etag: str) -> File:
        return File(path, f"s3://{self._bucket}/{key}", size, etag)

    def fetch(self, file: File, part: Path) -> Checksum | None:
        """See :class:`trainium_workloads.stage.files.Source`. An object of several pieces begins anew after a kill."""
        which = {"Bucket": self._bucket, "Key": file.where.removeprefix(f"s3://{self._bucket}/")}
        if (file.size or 0) > PIECE_BYTES:
            head = self._ask(lambda s3: s3.head_object(**which, IfMatch=file.version, ChecksumMode="ENABLED"))
            self._ask(lambda _: self._manager.download(*which.values(), str(part), subscribers=[_Known(file)]).result())
            return self._checksum(file, which, head["ResponseMetadata"]["HTTPHeaders"])

        def get(s3: Any) -> Any:
            answer = s3.get_object(**which, IfMatch=file.version, ChecksumMode="ENABLED")
            with part.open("wb") as out:
                for piece in answer["Body"].iter_chunks(BUFFER):
                    out.write(piece)
            return answer["ResponseMetadata"]["HTTPHeaders"]

        return self._checksum(file, which, self._ask(get))

    def _checksum(self, file: File, which: Any, headers: Any) -> Checksum | None:
        """Return the checksum of an answer, or the ETag of several parts where all but the last have one size."""
        parts = re.fullmatch(r"[0-9a-f]{32}-(\d+)", etag := file.version.strip('"'))
        if (found := announced(headers)) or not parts or is_encrypted(headers) or not file.size:
            return found
        size = int(self._ask(lambda s3: s3.head_object(**which, PartNumber=1))["ContentLength"])
        return Checksum("parts", etag, size) if size and -(-file.size // size) == int(parts[1]) else None

    def _ask(self, call: Callable[[Any], _T]) -> _T:
        """Return the answer to a request; sign all requests from the first refusal on, where there are credentials."""
        for _ in range(2):
            was_signed = self._is_signed
            try:
                return call(self._client)
            except ClientError as error:
                if was_signed or not _wants_signature(error) or not self._sign():
                    raise self._said(error) from None
            except (BotoCoreError, RetriesExceededError) as error:
                raise Interrupted(f"{self._source}: {error}") from None
        raise Interrupted(f"{self._source}: refused without a signature")

    def _sign(self) -> bool:
        if not self._is_signed and boto3.Session().get_credentials() is not None:
            self._is_signed = True
            self._connect(None)
        return self._is_signed

    def _said(self, error: ClientError) -> Exception:
        """Return the copier's error for one of S3."""
        status, code = error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
        text = error.response["Error"].get("Message", "")
        if status == 412:
            return Changed(f"{self._source} changed after it was listed")
        if status >= 500 or status == 429 or code in ("SlowDown", "RequestTimeout", "RequestTimeTooSkewed"):
            return Interrupted(f"{self._source}: {code}: {text}")
        if code == "NoSuchBucket" or (status == 404 and not self._key):
            return StageError(f"there is no bucket {self._bucket}")
        if code == "InvalidObjectState":
            return StageError(f"{self._source} holds an archived object, which must be restored first: {text}")
        if "kms" in text.lower():
            return StageError(
                f"{self._source} is encrypted with a KMS key that the namespace's role may not use: {text}"
            )
        if status == 403 and not self._is_signed:
            return StageError(
                f"{self._source} is not public, and here are no AWS credentials: the namespace has no role for S3"
            )
        if status == 403:
            return StageError(
                f"{self._source} is not public, and the namespace's role may not read it: a team's role reaches its "
                "own prefix of the stack's bucket and of the `data_bucket` in the stack's config"
            )
        return StageError(f"{self._source} cannot be read: {status} {code} {text}")


class _Known(BaseSubscriber):
    """Size and version of an object, which the transfer need not ask for, and must not differ."""

    def __init__(self, file: File) -> None:
        self._file = file

    def on_queued(self, future: Any, **_: Any) -> None:
        future.meta.provide_transfer_size(self._file.size)
        future.meta.provide_object_etag(self._file.version)


def _wants_signature(error: ClientError) -> bool:
    refused = error.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    return refused or "Signature Version 4" in error.response["Error"].get("Message", "")
