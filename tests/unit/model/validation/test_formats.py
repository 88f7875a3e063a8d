"""Text that people paste: line breaks, other scripts' digits and odd white space, held against AWS' own patterns."""

import re
from typing import Any

import botocore.session
import pytest
from unit.model.config.test_bad_inputs import SOUND, judged

from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.config import node_groups, storage
from trainium_eks.model.config.node_groups import NodeGroupConfig
from trainium_eks.model.config.storage import FileSystemConfig
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.config_model import read
from trainium_eks.model.validation.problems import config_path, describe, refused

BREAKS = ["\n", "\r", "\t", "\x00", "\x0b", "\x1f", "\x7f", "\x85", "\u2028", "\u2029"]
ARN = "arn:aws:iam::111122223333"


@pytest.mark.parametrize("mark", [*BREAKS, "\u00a0"], ids=ascii)
@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_tag_has_no_line_break_wherever_it_stands(mark: str, at: int) -> None:
    broken = "team"[:at] + mark + "team"[at:]
    assert [each.path for each in formats.tags("tags", {"Team": broken})] == ["tags.Team"]
    assert [each.reason for each in formats.tags("tags", {broken: "x"})] == [
        "a tag's key is 1 to 128 letters, digits, spaces and _.:/=+-@"
    ]


@pytest.mark.parametrize("value", ["ml platform", "me@example.com", "équipe 機械", "a/b:c=d+e-f_g.h", ""])
def test_a_tag_takes_every_letter_and_the_space(value: str) -> None:
    assert formats.tags("tags", {"Team": value}) == []


def test_tags_have_lengths_and_room_for_the_stacks_own() -> None:
    for key, value, taken in ((128, 256, True), (129, 1, False), (1, 257, False)):
        assert (formats.tags("", {"k" * key: "v" * value}) == []) == taken
    for count, taken in ((40, True), (41, False)):
        assert (formats.tags("", {f"k{index}": "v" for index in range(count)}) == []) == taken


def test_what_tags_take_is_within_iams_own_class() -> None:
    pattern = botocore.session.get_session().get_service_model("iam").shape_for("tagValueType").metadata["pattern"]
    assert pattern == r"[\p{L}\p{Z}\p{N}_.:/=+\-@]*"
    # Of \p{Z}, only the plain space; Python has no \p{L}, so its \w is taken, which is letters, numbers and _.
    allowed = [chr(code) for code in range(128) if formats.tags("", {"k": chr(code)}) == []]
    assert "".join(allowed) == " +-./0123456789:=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize("field", ["owner", "costCenter"])
def test_an_owner_of_two_lines_is_refused_and_shown_on_one(field: str) -> None:
    found = refused(judged({**SOUND, field: "ml\nplatform"}), {})
    assert [config_path(each.path) for each in found] == [field]
    assert r"= 'ml\nplatform':" in describe(found, config_path)


@pytest.mark.parametrize("mark", BREAKS, ids=ascii)
@pytest.mark.parametrize("field", ["prefix", "fileSystemPath"])
def test_what_is_linked_to_s3_is_one_line(field: str, mark: str) -> None:
    def told(value: str) -> list[str]:
        durability = {"type": "s3", "bucket": "my-data", field: value}
        return [
            config_path(each.path)
            for each in storage.validate(read(FileSystemConfig, {"durability": durability}), production=False)
        ]

    assert told(f"/sets{mark}" if field == "fileSystemPath" else f"sets{mark}") == [f"durability.{field}"]
    assert told("/sets é" if field == "fileSystemPath" else "sets é") == []


def test_what_fsx_takes_as_a_path_is_judged_no_more_widely() -> None:
    model = botocore.session.get_session().get_service_model("fsx")
    for shape in ("Namespace", "ArchivePath"):
        refused_by_fsx = re.findall(r"\\u[0-9A-Fa-f]{4}|\\r|\\n", model.shape_for(shape).metadata["pattern"])
        assert len(refused_by_fsx) == 6
        for escaped in refused_by_fsx:
            mark = escaped.encode().decode("unicode_escape")
            assert formats.one_line("path", f"a{mark}b"), escaped


@pytest.mark.parametrize(
    "arn",
    [
        f"{ARN}:role/admins",
        f"{ARN}:user/me@example.com",
        f"{ARN}:role/team/a!b/admins",
        f"{ARN}:role/aws-reserved/sso.amazonaws.com/AWSReservedSSO_Admin_0123456789abcdef",
        f"{ARN}:role/{'r' * 64}",
    ],
)
def test_roles_and_users_are_principals_with_and_without_a_path(arn: str) -> None:
    assert formats.principal("p", arn) == []


@pytest.mark.parametrize(
    "arn",
    [
        f"{ARN}:role/admins\n",
        f"{ARN}:role/ad\nmins",
        f"{ARN}:role/{'r' * 65}",
        f"{ARN}:role/équipe",
        f"{ARN}:role//",
        "arn:aws:iam::١١١١٢٢٢٢٣٣٣٣:role/admins",
    ],
    ids=ascii,
)
def test_what_iam_has_no_name_for_is_no_principal(arn: str) -> None:
    assert formats.principal("p", arn)


@pytest.mark.parametrize("value", ["١١١١٢٢٢٢٣٣٣٣", "111122223333\n", "11112222333", "1111222233334"], ids=ascii)
def test_an_account_has_twelve_plain_digits(value: str) -> None:
    assert formats.account_id("a", value)
    assert formats.account_id("a", "111122223333") == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("placement_group", "mine\n"),
        ("placement_group", "\x00"),
        ("placement_group", " mine"),
        ("placement_group", "g" * 256),
        ("release_version", "1.35.0-20260723\n"),
        ("release_version", "1.35.0-٢٠٢٦٠٧٢٣"),
    ],
    ids=ascii,
)
def test_names_of_a_group_are_plain(field: str, value: str) -> None:
    def told(value: str) -> list[str]:
        group = read(NodeGroupConfig, {"name": "train", "instance_type": "trn1.32xlarge", field: value})
        return [each.path for each in node_groups.validate(group, region="us-west-2", catalogue=CATALOGUE)]

    assert told(value) == [field]
    good = {"placement_group": ("g", "g" * 255, "my group"), "release_version": ("1.35.8-20260930",)}
    assert [told(each) for each in good[field]] == [[]] * len(good[field])


@pytest.mark.parametrize(
    "form",
    [
        formats.dns_label,
        formats.derived_name,
        formats.reservation_id,
        formats.account_id,
        formats.principal,
        formats.bucket,
        formats.cidr,
    ],
)
@pytest.mark.parametrize("good", ["train", "cr-0123456789abcdef0", "111122223333", f"{ARN}:role/x", "10.0.0.0/16"])
def test_no_form_takes_a_line_break_behind_a_good_value(form: Any, good: str) -> None:
    """``$`` matches before a last line break; whole values are matched."""
    assert form("path", f"{good}\n")
