"""Sources: S3 as moto has it, and archives; each over a real connection."""

import contextlib
import hashlib
import io
import json
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
from botocore.exceptions import ClientError
from moto import mock_aws
from staging_servers import FileServer, file_server, moto_server
from trainium_workloads.stage.__main__ import main
from trainium_workloads.stage.files import CopyInterruptedError, SourceChangedError, measure
from trainium_workloads.stage.s3 import S3, checksum_of

BUCKET = "data.sets"

Lines = list[dict[str, Any]]
Stage = Callable[..., tuple[int, Lines]]


@pytest.fixture
def stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Stage:
    def run(source: str, *options: str) -> tuple[int, Lines]:
        code = main([source, "--to", "set", "--root", str(tmp_path), *options])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def content_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith(".stage")
    }


def sums(directory: Path) -> dict[str, str]:
    lines = (directory / ".stage-files.jsonl").read_text().splitlines()
    return {line["path"]: line["checksum"].partition(":")[0] for line in map(json.loads, lines)}


# --- S3 ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Sequence[requests.PreparedRequest]]]:
    """A client of moto's S3 with a bucket, and what the server was asked."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with mock_aws(), moto_server() as (url, seen):
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        yield client, seen


def test_a_public_prefix_comes_without_credentials(s3: Any, stage: Stage, tmp_path: Path) -> None:
    client, seen = s3
    files = {f"wiki/{index} +%.bin": random.Random(index).randbytes(1000 + index) for index in range(7)}
    for key, content in {**files, "wiki/directory/": b"", "wikipedia": b"other"}.items():
        client.put_object(Bucket=BUCKET, Key=key, Body=content, ACL="public-read")
    code, lines = stage(f"s3://{BUCKET}/wiki")
    assert code == 0, lines[-1]
    assert content_of(tmp_path / "set") == {key.removeprefix("wiki/"): content for key, content in files.items()}
    assert set(sums(tmp_path / "set").values()) == {"md5"}
    assert not [asked for asked in seen if "authorization" in asked.headers]


@pytest.mark.slow
def test_a_list_in_pages_is_read_to_its_end(s3: Any, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    client, seen = s3
    for index in range(1003):
        client.put_object(Bucket=BUCKET, Key=f"many/{index}", Body=b"x", ACL="public-read")
    assert len(list(S3(f"s3://{BUCKET}/many/", 16).list_files())) == 1003
    assert len([asked for asked in seen if "list-type" in str(asked.url)]) == 2


def test_one_object_is_one_file_and_what_is_not_public_is_asked_for_signed(
    s3: Any, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, seen = s3
    client.put_object(Bucket=BUCKET, Key="private/a.bin", Body=b"content")
    code, lines = stage(f"s3://{BUCKET}/private/a.bin")
    assert code == 1
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    code, lines = stage(f"s3://{BUCKET}/private/a.bin")
    assert code == 0, lines[-1]
    assert content_of(tmp_path / "set") == {"a.bin": b"content"}
    assert "authorization" in seen[-1].headers


def test_an_object_in_several_parts_is_verified_by_its_etag(s3: Any, stage: Stage, tmp_path: Path) -> None:
    client, _ = s3
    size = 8 * 1024 * 1024
    content = random.Random(3).randbytes(2 * size + 1000)
    made = client.create_multipart_upload(Bucket=BUCKET, Key="big.bin", ACL="public-read")
    parts = []
    for number in range(3):
        part = content[number * size : (number + 1) * size]
        tag = client.upload_part(
            Bucket=BUCKET, Key="big.bin", UploadId=made["UploadId"], PartNumber=number + 1, Body=part
        )["ETag"]
        parts.append({"ETag": tag, "PartNumber": number + 1})
    client.complete_multipart_upload(
        Bucket=BUCKET, Key="big.bin", UploadId=made["UploadId"], MultipartUpload={"Parts": parts}
    )
    code, lines = stage(f"s3://{BUCKET}/big.bin")
    assert code == 0, lines[-1]
    assert content_of(tmp_path / "set") == {"big.bin": content}
    assert sums(tmp_path / "set") == {"big.bin": f"parts/{size}"}
    etag = client.head_object(Bucket=BUCKET, Key="big.bin")["ETag"].strip('"')
    assert measure(tmp_path / "set/big.bin", f"parts/{size}")[1] == f"parts/{size}:{etag}"


def test_what_is_not_there_or_not_allowed_is_said(s3: Any, stage: Stage) -> None:
    code, lines = stage("s3://no-such-bucket/x/")
    assert (code, lines[-1]["message"]) == (1, "there is no bucket no-such-bucket")
    code, lines = stage(f"s3://{BUCKET}/none/")
    assert (code, lines[-1]["message"].partition(":")[0]) == (1, "there is nothing at s3")
    code, lines = stage("s3:///x")
    assert (code, "names no bucket" in lines[-1]["message"]) == (1, True)


@pytest.mark.parametrize("size", [1000, 17 * 1024 * 1024])
def test_cut_connections_are_no_loss_and_a_changed_object_is_no_mixture(
    s3: Any, stage: Stage, tmp_path: Path, size: int
) -> None:
    client, seen = s3
    old, new = random.Random(1).randbytes(size), random.Random(2).randbytes(size)
    client.put_object(Bucket=BUCKET, Key="x/a.bin", Body=old, ACL="public-read")
    source = S3(f"s3://{BUCKET}/x/", 4)
    (listed,) = source.list_files()
    seen.cuts, found = 2, None
    while found is None:
        with contextlib.suppress(CopyInterruptedError):  # a small object is asked for again by the copier
            found = source.fetch(listed, tmp_path / "part")
    assert found == f"md5:{hashlib.md5(old).hexdigest()}"
    assert ((tmp_path / "part").read_bytes() == old, seen.cuts) == (True, 0)
    client.put_object(Bucket=BUCKET, Key="x/a.bin", Body=new, ACL="public-read")
    with pytest.raises(SourceChangedError, match="changed after it was listed"):
        source.fetch(listed, tmp_path / "part")


@pytest.mark.parametrize(
    ("status", "code", "text", "said"),
    [
        (403, "AccessDenied", "not authorized to perform: kms:Decrypt", "is encrypted with a KMS key that the"),
        (403, "AccessDenied", "Access Denied", "is not public, and here are no AWS credentials"),
        (403, "InvalidObjectState", "GLACIER", "holds an archived object, which must be restored first"),
        (400, "InvalidRequest", "why", "cannot be read: 400 InvalidRequest why"),
        (503, "SlowDown", "reduce your rate", "SlowDown"),
    ],
)
def test_refusals_of_s3_are_said_in_words(status: int, code: str, text: str, said: str) -> None:
    answer: Any = {"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": status}}
    found = S3("s3://bucket/key", 1)._said(ClientError(answer, "GetObject"))
    assert said in str(found)
    assert isinstance(found, CopyInterruptedError) == (status == 503)


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({"etag": '"' + "a" * 32 + '"'}, "md5"),
        ({"etag": '"' + "a" * 32 + '-2"'}, None),
        ({"etag": '"' + "a" * 32 + '"', "x-amz-server-side-encryption": "aws:kms"}, None),
        ({"x-amz-checksum-sha256": "AAAA", "x-amz-checksum-type": "COMPOSITE"}, None),
        ({"x-amz-checksum-sha256": "AAAA"}, "sha256"),
        ({"x-amz-checksum-sha256": "AAAA-2"}, None),
        ({"x-amz-checksum-crc64nvme": "AAAAAA=="}, None),
    ],
)
def test_which_checksum_an_answer_tells(headers: dict[str, str], kind: str | None) -> None:
    found = checksum_of(headers)
    assert (found.partition(":")[0] or None) == kind


# --- Archives ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as stub:
        yield stub


def a_tar(members: dict[str, bytes | tarfile.TarInfo], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content) if isinstance(content, bytes) else 0
            tar.addfile(info, io.BytesIO(content if isinstance(content, bytes) else b""))
    return out.getvalue()


def a_zip(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return out.getvalue()


def link(name: str, to: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, to
    return info


def a_list(server: FileServer, files: dict[str, bytes]) -> str:
    server.files |= {f"/{path}": content for path, content in files.items()}
    lines = (f"{hashlib.sha256(content).hexdigest()}  {path}" for path, content in files.items())
    server.files["/SHA256SUMS"] = "\n".join(lines).encode()
    return f"{server.url}/SHA256SUMS"


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tgz", "tar.bz2", "tar.xz", "zip"])
def test_an_archive_is_unpacked_and_gone(server: FileServer, stage: Stage, tmp_path: Path, ending: str) -> None:
    files = {"top/a.bin": random.Random(1).randbytes(100_000), "top/deep/b": b"b"}
    mode = {"tar": "w", "tar.gz": "w:gz", "tgz": "w:gz", "tar.bz2": "w:bz2", "tar.xz": "w:xz"}.get(ending, "")
    server.files[f"/set.{ending}"] = a_tar(dict(files), mode) if mode else a_zip(files)
    code, lines = stage(f"{server.url}/set.{ending}", "--extract")
    assert code == 0, lines[-1]
    assert content_of(tmp_path / "set") == files
    assert any(line["stage"] == "unpacking" for line in lines)
    code, lines = stage(f"{server.url}/set.{ending}", "--extract")
    assert (code, lines[-1]["stage"]) == (0, "unchanged")


def test_archives_are_unpacked_where_they_lie_beside_other_files(
    server: FileServer, stage: Stage, tmp_path: Path
) -> None:
    archives = {"x/1.tar": a_tar({"t/1": b"1"}, "w"), "x/2.tar": a_tar({"t/2": b"2"}, "w"), "notes.txt": b"n"}
    assert stage(a_list(server, archives), "--list", "--extract")[0] == 0
    assert content_of(tmp_path / "set") == {"x/t/1": b"1", "x/t/2": b"2", "notes.txt": b"n"}


def test_a_directory_of_the_archives_own_name_is_not_doubled(server: FileServer, stage: Stage, tmp_path: Path) -> None:
    archives = {"one.tar.gz": a_tar({"one/a": b"1"}), "two.tar": a_tar({"two/b": b"2", "c": b"3"}, "w")}
    assert stage(a_list(server, archives), "--list", "--extract")[0] == 0
    assert content_of(tmp_path / "set") == {"a": b"1", "two/b": b"2", "c": b"3"}


def test_two_archives_with_one_file_are_refused(server: FileServer, stage: Stage) -> None:
    archives = {"1.tar": a_tar({"t/1": b"1"}, "w"), "2.tar": a_tar({"t/1": b"2"}, "w")}
    code, lines = stage(a_list(server, archives), "--list", "--extract")
    assert (code, "2.tar holds '1', as the source does already" in lines[-1]["message"]) == (1, True)


@pytest.mark.parametrize(
    "members",
    [
        {"../out": b"x"},
        {"/tmp/out-of-the-volume": b"x"},
        {"l": link("l", "/etc/passwd")},
        {"l": link("l", "../.."), "l/out": b"x"},
        {".stage.json": b"{}"},
    ],
    ids=["above", "absolute", "link to a file outside", "through a link", "the copier's own name"],
)
def test_an_archive_does_not_reach_outside(
    server: FileServer, stage: Stage, tmp_path: Path, members: dict[str, bytes | tarfile.TarInfo]
) -> None:
    server.files["/set.tar"] = a_tar(members, "w")
    code, lines = stage(f"{server.url}/set.tar", "--extract")
    inside = "/tmp/out-of-the-volume" in members  # tarfile takes the slash away, as tar does
    assert (code, lines[-1]["stage"]) == ((0, "complete") if inside else (1, "failed"))
    # Not the whole of the directory above: other tests work there.
    assert not [*tmp_path.rglob("out"), *tmp_path.parent.glob("out")]
    assert not Path("/tmp/out-of-the-volume").exists()


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out"])
def test_a_zip_does_not_reach_outside(server: FileServer, stage: Stage, tmp_path: Path, name: str) -> None:
    server.files["/set.zip"] = a_zip({name: b"x"})
    code, lines = stage(f"{server.url}/set.zip", "--extract")
    assert (code, "no path below a directory" in lines[-1]["message"]) == (1, True)


def test_a_broken_archive_and_none_at_all_are_said(server: FileServer, stage: Stage, tmp_path: Path) -> None:
    server.files |= {"/set.tar.gz": a_tar({"a": b"a" * 100_000})[:-50], "/set.bin": b"x"}
    code, lines = stage(f"{server.url}/set.tar.gz", "--extract")
    assert (code, "set.tar.gz cannot be unpacked" in lines[-1]["message"]) == (1, True)
    code, lines = stage(f"{server.url}/set.bin", "--extract", "--replace")
    assert (code, "holds no archive to unpack" in lines[-1]["message"]) == (1, True)
    assert not (tmp_path / "set").exists()


def test_killed_while_it_unpacks_it_goes_on(
    server: FileServer, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of its renames and links, one after the other."""
    import os

    archives = {f"x/{n}.tar": a_tar({f"t{n}/{each}": bytes([n]) for each in "ab"}, "w") for n in range(3)}
    url = a_list(server, archives)
    wanted = {f"x/t{n}/{each}": bytes([n]) for n in range(3) for each in "ab"}

    class Killed(BaseException):
        pass

    for at in range(100):
        calls = 0

        def dying(act: Callable[..., None], at: int = at) -> Callable[..., None]:
            def call(*arguments: Any) -> None:
                nonlocal calls
                calls += 1
                if calls > at:
                    raise Killed
                act(*arguments)

            return call

        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", dying(os.rename))
            patch.setattr(os, "link", dying(os.link))
            patch.setattr(os, "replace", dying(os.replace))
            try:
                code, _ = stage(url, "--list", "--extract")
                break
            except Killed:
                assert not (tmp_path / "set").exists() or content_of(tmp_path / "set") == wanted
    assert at >= 4
    assert code == 0
    assert content_of(tmp_path / "set") == wanted
