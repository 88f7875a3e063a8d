"""Findings against the file of waivers: each excused once, for a reason, and no entry longer than it is needed."""

from pathlib import Path

import pytest

from policy.scan.waivers import BadWaivers, Finding, Waiver, judge, read

LOGS = Finding("CKV_AWS_18", "access logs", "prod/aws_s3_bucket.data")
COPIES = Finding("CKV_AWS_144", "replication", "prod/aws_s3_bucket.data")


def waiver(*checks: str, resources: tuple[str, ...] = ("prod/aws_s3_bucket.*",)) -> Waiver:
    return Waiver(checks, resources, "because")


def test_what_no_waiver_names_stands() -> None:
    judged = judge([LOGS, COPIES], [waiver("CKV_AWS_18")], everything_seen=True)
    assert (judged.standing, judged.waived, judged.stale) == ((COPIES,), (LOGS,), ())


@pytest.mark.parametrize("pattern", ["dev/aws_s3_bucket.*", "prod/aws_s3_bucket", "*/aws_s3_bucket.logs"])
def test_a_pattern_means_the_whole_name(pattern: str) -> None:
    judged = judge([LOGS], [waiver("CKV_AWS_18", resources=(pattern,))], everything_seen=True)
    assert judged.standing == (LOGS,)
    assert judged.stale == (f"CKV_AWS_18 is waived for {pattern}, where it does not fail; remove that",)


def test_each_check_and_each_pattern_must_be_needed() -> None:
    given = [waiver("CKV_AWS_18", "CKV_AWS_21"), waiver("CKV_AWS_144", resources=("prod/*", "dev/*"))]
    stale = judge([LOGS, COPIES], given, everything_seen=True).stale
    assert [each.partition(" is waived")[0] for each in stale] == ["CKV_AWS_21", "CKV_AWS_144"]
    assert "dev/*" in stale[1]


def test_nothing_is_stale_when_only_a_part_was_looked_at() -> None:
    assert judge([], [waiver("CKV_AWS_18")], everything_seen=False).stale == ()


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "waivers.yaml"
    file.write_text("- {checks: [CKV_AWS_18], resources: [prod/*], reason: because}\n")
    assert read(file) == (Waiver(("CKV_AWS_18",), ("prod/*",), "because"),)
    file.write_text("[]\n")
    assert read(file) == ()
    assert read(tmp_path / "none.yaml") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {checks: [A], resources: [b], reason: ''}", "entry 1: A waived without a reason"),
        ("- {checks: [A], resources: [b], reason: }", "entry 1: A waived without a reason"),
        ("- {checks: [A], resources: [b]}", "entry 1: wanted checks, resources, reason; it has checks, resources"),
        ("- {checks: [A], resources: [b], reason: c, until: d}", "it has checks, resources, reason, until"),
        ("- {checks: A, resources: [b], reason: c}", "entry 1: checks and resources must be lists"),
        ("- {checks: [A], resources: [], reason: c}", "entry 1: checks and resources must be lists"),
        ("- {checks: [A, A], resources: [b], reason: c}", "entry 1: A is waived for b twice"),
        ("checks: [A]", "wanted a list of entries"),
        ("- CKV_AWS_18", "entry 1: wanted checks, resources, reason; it has CKV_AWS_18"),
    ],
)
def test_a_file_that_does_not_say_what_it_must_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "waivers.yaml"
    file.write_text(text)
    with pytest.raises(BadWaivers) as error:
        read(file)
    assert said in str(error.value)
