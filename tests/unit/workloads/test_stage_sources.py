"""Sources: S3 as moto has it, and archives; each over a real connection."""

import contextlib
import hashlib
import io
import json
import os
import random
import tarfile
import zipfile

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
from moto import mock_aws
from staging_servers import content_of, moto_server
from trainium_workloads.stage import s3 as source_of_s3
from trainium_workloads.stage.files import CopyInterruptedError
from trainium_workloads.stage.s3 import S3, checksum_of

BUCKET = "data.sets"


def sums(directory):
    lines = (directory / ".stage-files.jsonl").read_text().splitlines()
    return {line["path"]: line["checksum"].partition(":")[0] for line in map(json.loads, lines)}


@pytest.fixture
def s3(monkeypatch):
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


def test_public_prefix_is_fetched_without_credentials(s3, stage, tmp_path):
    client, seen = s3
    files = {f"wiki/{index} +%.bin": random.Random(index).randbytes(1000 + index) for index in range(7)}
    for key, content in {**files, "wiki/directory/": b"", "wikipedia": b"other"}.items():
        client.put_object(Bucket=BUCKET, Key=key, Body=content, ACL="public-read")
    ended = stage(f"s3://{BUCKET}/wiki")
    assert ended.code == 0, ended
    assert content_of(tmp_path / "set") == {key.removeprefix("wiki/"): content for key, content in files.items()}
    assert set(sums(tmp_path / "set").values()) == {"md5"}
    assert not [asked for asked in seen if "authorization" in asked.headers]


def test_single_object_is_one_file_and_private_ones_are_signed(s3, stage, tmp_path, monkeypatch):
    client, seen = s3
    client.put_object(Bucket=BUCKET, Key="private/a.bin", Body=b"content")
    assert stage(f"s3://{BUCKET}/private/a.bin").code == 1
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    ended = stage(f"s3://{BUCKET}/private/a.bin")
    assert (ended.code, content_of(tmp_path / "set")) == (0, {"a.bin": b"content"}), ended
    assert "authorization" in seen[-1].headers


def test_object_uploaded_in_parts_has_no_checksum(s3, stage, tmp_path):
    client, _ = s3
    content = random.Random(3).randbytes(17 * 1024 * 1024)
    settings = TransferConfig(multipart_threshold=1, multipart_chunksize=8 * 1024 * 1024)
    client.upload_fileobj(io.BytesIO(content), BUCKET, "big.bin", {"ACL": "public-read"}, Config=settings)
    ended = stage(f"s3://{BUCKET}/big.bin")
    assert (ended.code, content_of(tmp_path / "set")) == (0, {"big.bin": content}), ended
    assert "of 1 the source tells no checksum" in ended.message


def test_server_that_shortens_ranges_leaves_no_hole(s3, tmp_path, monkeypatch):
    client, _ = s3
    monkeypatch.setattr(source_of_s3, "PIECE_BYTES", 10_000)
    content = random.Random(4).randbytes(95_000)
    client.put_object(Bucket=BUCKET, Key="big.bin", Body=content, ACL="public-read")
    source = S3(f"s3://{BUCKET}/big.bin", 4)
    (listed,) = source.list_files()
    get = source._client.get_object

    def get_less(**asked):
        start, last = map(int, asked["Range"].removeprefix("bytes=").split("-"))
        return get(**asked | {"Range": f"bytes={start}-{min(last, start + 3_999)}"})

    monkeypatch.setattr(source._client, "get_object", get_less)
    found = source.fetch(listed, tmp_path / "part")
    assert ((tmp_path / "part").read_bytes() == content, found.measured[1]) == (True, found.checksum)


def test_missing_or_forbidden_bucket_is_reported(s3, stage):
    for source, said in (
        ("s3://no-such-bucket/x/", "there is no bucket no-such-bucket"),
        (f"s3://{BUCKET}/none/", "there is nothing at s3:"),
        ("s3:///x", "names no bucket"),
    ):
        ended = stage(source)
        assert (ended.code, said in ended.message) == (1, True), ended


@pytest.mark.parametrize("size", [1000, 17 * 1024 * 1024])
def test_cut_connection_resumes_and_a_changed_object_is_not_mixed(s3, stage, tmp_path, size):
    client, seen = s3
    old, new = random.Random(1).randbytes(size), random.Random(2).randbytes(size)
    client.put_object(Bucket=BUCKET, Key="x/a.bin", Body=old, ACL="public-read")
    source = S3(f"s3://{BUCKET}/x/", 4)
    (listed,) = source.list_files()
    seen.cuts, found = 2, None
    while found is None:
        with contextlib.suppress(CopyInterruptedError):  # a small object is asked for again by the copier
            found = source.fetch(listed, tmp_path / "part")
    assert found.checksum == f"md5:{hashlib.md5(old).hexdigest()}"
    assert ((tmp_path / "part").read_bytes() == old, seen.cuts) == (True, 0)
    client.put_object(Bucket=BUCKET, Key="x/a.bin", Body=new, ACL="public-read")
    with pytest.raises(CopyInterruptedError, match="changed after it was listed"):
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
def test_s3_errors_are_described(status, code, text, said):
    answer = {"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": status}}
    found = S3("s3://bucket/key", 1)._translated(ClientError(answer, "GetObject"))
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
def test_checksum_of_an_answer_is_read(headers, kind):
    found = checksum_of(headers)
    assert (found.partition(":")[0] or None) == kind


def a_tar(members, mode="w:gz"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tar:
        for name, content in members.items():
            info, data = (tarfile.TarInfo(name), content) if isinstance(content, bytes) else (content, b"")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def a_zip(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return out.getvalue()


def link(name, to):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, to
    return info


unpacks_tars = pytest.mark.skipif(
    not hasattr(tarfile, "data_filter"), reason="this Python's tarfile has no data filter: 3.11.4 or newer brings it"
)


@unpacks_tars
@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tgz", "tar.bz2", "tar.xz", "zip"])
def test_archive_is_unpacked_and_deleted(server, stage, tmp_path, ending):
    files = {"top/a.bin": random.Random(1).randbytes(100_000), "top/deep/b": b"b"}
    mode = {"tar": "w", "tar.gz": "w:gz", "tgz": "w:gz", "tar.bz2": "w:bz2", "tar.xz": "w:xz"}.get(ending, "")
    server.files[f"/set.{ending}"] = a_tar(files, mode) if mode else a_zip(files)
    ended = stage(f"{server.url}/set.{ending}", "--extract")
    assert (ended.code, content_of(tmp_path / "set")) == (0, files), ended
    assert any(line["stage"] == "unpacking" for line in ended.lines)
    assert stage(f"{server.url}/set.{ending}", "--extract").stage == "unchanged"


@unpacks_tars
@pytest.mark.parametrize(
    ("archives", "found"),
    [({"x/1.tar": a_tar({"t/1": b"1"}, "w"), "x/2.tar": a_tar({"t/2": b"2"}, "w"), "notes.txt": b"n"},
      {"x/t/1": b"1", "x/t/2": b"2", "notes.txt": b"n"}),
     ({"one.tar.gz": a_tar({"one/a": b"1"}), "two.tar": a_tar({"two/b": b"2", "c": b"3"}, "w")},
      {"a": b"1", "two/b": b"2", "c": b"3"})],
    ids=["beside other files", "a directory of the archive's own name is not doubled"],
)  # fmt: skip
def test_archives_are_unpacked_in_place(folder, stage, tmp_path, archives, found):
    assert stage(folder(archives), "--extract").code == 0
    assert content_of(tmp_path / "set") == found


@unpacks_tars
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("set.tar", a_tar({"../out": b"x"}, "w"), ""),
        ("set.tar", a_tar({"l": link("l", "/etc/passwd")}, "w"), ""),
        ("set.tar", a_tar({"l": link("l", "../.."), "l/out": b"x"}, "w"), ""),
        ("set.tar", a_tar({".stage.json": b"{}"}, "w"), ""),
        *(("set.zip", a_zip({out: b"x"}), "not a path below a directory") for out in ("../out", "/out", "a/../../out")),
        ("set.tar.gz", a_tar({"a": b"a" * 100_000})[:-50], "set.tar.gz cannot be unpacked"),
        ("set.bin", b"x", "holds no archive to unpack"),
    ],
)
def test_malformed_or_escaping_archive_is_refused(server, stage, tmp_path, name, content, said):
    server.files[f"/{name}"] = content
    ended = stage(f"{server.url}/{name}", "--extract")
    assert (ended.code, ended.stage, said in ended.message) == (1, "failed", True), ended
    # Not the whole of the directory above: other tests work there.
    assert not [*tmp_path.rglob("out"), *tmp_path.parent.glob("out"), *tmp_path.glob("set")]


def test_tar_is_refused_where_python_has_no_data_filter(server, stage, tmp_path, monkeypatch):
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    server.files["/set.tar"] = a_tar({"../out": b"x"}, "w")
    ended = stage(f"{server.url}/set.tar", "--extract")
    assert (ended.code, "give an image with a newer Python" in ended.message) == (1, True)
    assert not [*tmp_path.parent.glob("out"), *tmp_path.glob("set")]


@unpacks_tars
def test_two_archives_with_one_file_are_refused(folder, stage):
    archives = {"1.tar": a_tar({"t/1": b"1"}, "w"), "2.tar": a_tar({"t/1": b"2"}, "w")}
    ended = stage(folder(archives), "--extract")
    assert (ended.code, "2.tar holds '1', as the source does already" in ended.message) == (1, True)


@unpacks_tars
def test_unpacking_killed_at_each_rename_and_link_resumes(folder, stage, tmp_path, monkeypatch):
    archives = {f"x/{n}.tar": a_tar({f"t{n}/{each}": bytes([n]) for each in "ab"}, "w") for n in range(3)}
    url = folder(archives)
    wanted = {f"x/t{n}/{each}": bytes([n]) for n in range(3) for each in "ab"}

    class Killed(BaseException):
        pass

    def dying(act):
        def call(*arguments):
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            act(*arguments)

        return call

    for at in range(100):
        left = at
        with monkeypatch.context() as patch:
            for name in ("rename", "link", "replace"):
                patch.setattr(os, name, dying(getattr(os, name)))
            try:
                ended = stage(url, "--extract")
                break
            except Killed:
                assert not (tmp_path / "set").exists() or content_of(tmp_path / "set") == wanted
    assert (at >= 4, ended.code, content_of(tmp_path / "set")) == (True, 0, wanted)
