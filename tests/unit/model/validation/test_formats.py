"""Text that people paste: line breaks, other scripts' digits and odd white space, held against AWS' own patterns; and
text that is encrypted, which is neither judged nor overwritten."""

import re

import botocore.session
import pytest
from unit.model.config.test_bad_inputs import SOUND, judged, laid_over
from unit.model.config.test_config import put

from trainium_eks.model.validation import formats, ranges
from trainium_eks.model.validation.problems import config_path, describe, refused
from trainium_eks.model.validation.unseen import UNSEEN
from trainium_eks.plan.graph import SECRET

BREAKS = ["\n", "\r", "\t", "\x00", "\x0b", "\x1f", "\x7f", "\x85", "\u2028", "\u2029"]
ARN = "arn:aws:iam::111122223333"


@pytest.mark.parametrize("mark", [*BREAKS, "\u00a0"], ids=ascii)
def test_tag_has_no_line_break(mark):
    for at in (0, 2, 4):
        broken = "team"[:at] + mark + "team"[at:]
        assert [each.path for each in formats.tags("tags", {"Team": broken})] == ["tags.Team"]
        (problem,) = formats.tags("tags", {broken: "x"})
        assert problem.reason == "a tag's key is 1 to 128 letters, digits, spaces and _.:/=+-@"


def test_tag_accepts_every_letter_and_leaves_room_for_the_stacks_own():
    for value in ("ml platform", "me@example.com", "équipe 機械", "a/b:c=d+e-f_g.h", ""):
        assert formats.tags("tags", {"Team": value}) == []
    for key, length, taken in ((128, 256, True), (129, 1, False), (1, 257, False)):
        assert (formats.tags("", {"k" * key: "v" * length}) == []) == taken
    for count, taken in ((40, True), (41, False)):
        assert (formats.tags("", {f"k{index}": "v" for index in range(count)}) == []) == taken
    pattern = botocore.session.get_session().get_service_model("iam").shape_for("tagValueType").metadata["pattern"]
    assert pattern == r"[\p{L}\p{Z}\p{N}_.:/=+\-@]*"
    # Of \p{Z}, only the plain space; Python has no \p{L}, so its \w is taken, which is letters, numbers and _.
    allowed = [chr(code) for code in range(128) if formats.tags("", {"k": chr(code)}) == []]
    assert "".join(allowed) == " +-./0123456789:=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"


def test_owner_and_linked_path_are_single_lines():
    for field in ("owner", "costCenter"):
        found = refused(judged({**SOUND, field: "ml\nplatform"}), {})
        assert [config_path(each.path) for each in found] == [field]
        assert r"= 'ml\nplatform':" in describe(found, config_path)
    model = botocore.session.get_session().get_service_model("fsx")
    shapes = [model.shape_for(name) for name in ("Namespace", "ArchivePath")]
    escaped = [re.findall(r"\\u[0-9A-Fa-f]{4}|\\r|\\n", shape.metadata["pattern"]) for shape in shapes]
    assert [len(each) for each in escaped] == [6, 6]
    for mark in (*BREAKS, *(each.encode().decode("unicode_escape") for marks in escaped for each in marks)):
        assert formats.one_line("path", f"sets{mark}"), ascii(mark)
    assert formats.one_line("path", "/sets é") == []


PRINCIPALS = {
    f"{ARN}:role/admins": True,
    f"{ARN}:user/me@example.com": True,
    f"{ARN}:role/team/a!b/admins": True,
    f"{ARN}:role/aws-reserved/sso.amazonaws.com/AWSReservedSSO_Admin_0123456789abcdef": True,
    f"{ARN}:role/{'r' * 64}": True,
    f"{ARN}:role/{'r' * 65}": False,
    f"{ARN}:role/ad\nmins": False,
    f"{ARN}:role/équipe": False,
    f"{ARN}:role//": False,
    "arn:aws:iam::١١١١٢٢٢٢٣٣٣٣:role/admins": False,
}


def test_principals_and_accounts_are_valid_for_iam():
    assert {arn: formats.principal("p", arn) == [] for arn in PRINCIPALS} == PRINCIPALS
    accounts = ["111122223333", "١١١١٢٢٢٢٣٣٣٣", "11112222333", "1111222233334"]
    assert [formats.account_id("a", each) == [] for each in accounts] == [True, False, False, False]


@pytest.mark.parametrize(
    ("field", "value", "sound"),
    [
        ("placementGroup", "g" * 255, True),
        ("placementGroup", "my group", True),
        ("placementGroup", "mine\n", False),
        ("releaseVersion", "1.35.8-20260930", True),
        ("releaseVersion", "1.35.8-20260930\n", False),
        ("releaseVersion", "1.35.8-٢٠٢٦٠٩٣٠", False),
    ],
    ids=ascii,
)
def test_names_of_a_group_are_plain(field, value, sound):
    group = {"name": "train", "instanceType": "trn1.32xlarge", field: value}
    found = judged({**SOUND, "nodeGroups": [group]})
    assert [config_path(each.path) for each in found] == [f"nodeGroups[0].{field}"] * (not sound)


LABELS = {
    ("example.com/team", "a.b_c-d"): True,
    ("example.com/team", "a" * 63): True,
    ("example.com/team", "a" * 64): False,
    ("example.com/team", "-a"): False,
    ("example.com/team", ""): False,
    ("example.com/".ljust(63, "a"), "x"): True,
    ("example.com/".ljust(64, "a"), "x"): False,
    ("amazonaws.com/team", "x"): True,
    ("node.kubernetes.io/team", "x"): False,
    ("k8s.io/team", "x"): False,
    ("topology.k8s.aws/team", "x"): False,
    **{(key, "x"): False for key in ("-team", "Example.com/team", "a" * 64, "")},
}


def test_label_is_valid_for_kubernetes_and_eks_without_trailing_newline():
    assert {label: formats.labels("labels", dict([label])) == [] for label in LABELS} == LABELS
    # `$` matches before a last line break: whole values are matched.
    forms = [formats.dns_label, formats.derived_name, formats.reservation_id, formats.account_id]
    for good in ("train", "cr-0123456789abcdef0", "111122223333", f"{ARN}:role/x", "10.0.0.0/16"):
        for form in (*forms, formats.principal, formats.bucket, formats.cidr):
            assert form("path", f"{good}\n"), form


def test_addresses_are_counted_once_and_reserved_ranges_are_pythons():
    assert ranges.public_addresses(["198.51.100.0/24", "198.51.100.7/32", "nonsense", "::/0"]) == 256
    for network in (*ranges.PRIVATE, *ranges.UNUSABLE):
        for address in (network[0], network[-1]):
            assert address.is_private or address.is_multicast or address.is_reserved
    assert not ranges.SHARED[0].is_global
    assert not ranges.SHARED[-1].is_global


def encrypted(path, value):
    return judged(put({str(path[0]): {}, **SOUND}, path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("owner",), UNSEEN),
        (("tags", "a.b/c"), UNSEEN),
        (("allowedAccountIds", 0), UNSEEN),
        (("cluster", "endpoint", "publicAccessCidrs"), [UNSEEN, UNSEEN]),
        (("cluster", "adminPrincipals"), [UNSEEN, UNSEEN]),
        (("network", "peerCidrBlocks"), [UNSEEN, UNSEEN]),
        (("fileSystem", "durability"), {"type": "s3", "bucket": UNSEEN}),
    ],
    ids=str,
)
def test_encrypted_value_is_not_judged(path, value):
    assert UNSEEN == SECRET, "the recorder's word"
    assert encrypted(path, value) == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("region",), UNSEEN),
        (("network", "zoneIds"), ["usw2-az4", UNSEEN]),
        (("nodeGroups",), [{"name": UNSEEN, "instanceType": "trn1.32xlarge"}]),
        (("cluster", "kubernetesVersion"), UNSEEN),
        (("cluster", "logRetentionDays"), UNSEEN),
        (("production",), UNSEEN),
        (("cluster",), UNSEEN),
    ],
    ids=str,
)
def test_encrypted_structural_key_is_refused_and_not_overwritten(path, value):
    found = encrypted(path, value)
    here = [each for each in found if config_path(each.path).startswith(str(path[0]))]
    assert [each.reason.partition(",")[0] for each in here] == ["it is encrypted"]
    assert all(each.good is None for each in found)
    assert "pulumi config set" not in describe(found, config_path)
    # Keys next to it are judged all the same.
    beside = laid_over(SOUND, {"owner": UNSEEN, "costCenter": "a\nb", "allowedAccountIds": [UNSEEN, "12"]})
    assert [each.path for each in judged(beside)] == ["cost_center", "allowed_account_ids[1]"]
