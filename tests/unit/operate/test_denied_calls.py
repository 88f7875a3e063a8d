"""Denied calls in the words of public reports."""

import json
from pathlib import Path

import pytest
import yaml

from trainium_eks.operate.denied_calls import DeniedCall, PolicyKind, find_denied_calls, format_denied_calls

MESSAGES = yaml.safe_load((Path(__file__).parent / "denied_messages.yaml").read_text())


@pytest.mark.parametrize("row", MESSAGES, ids=lambda row: row["source"])
def test_denied_calls_are_found_in_public_messages(row):
    found = find_denied_calls(row["text"])
    assert [
        [
            call.action,
            call.resource,
            call.policy_kind.value,
            *(["deny"] if call.is_explicit else []),
            *(["wait"] if call.wait_seconds else []),
            *(["encoded"] if call.encoded else []),
        ]
        for call in found
    ] == row["calls"]
    for call in found:
        # A statement allows exactly the named call; where a Deny matched, no statement helps.
        allowed = json.loads(call.statement or '{"Action": [], "Resource": ""}')
        assert not call.statement or call.action in allowed["Action"], call
        assert not call.statement or allowed["Resource"] == (call.resource or "*"), call
        assert not (call.statement and call.is_explicit), call


def test_calls_of_one_output_are_found_once_and_in_order():
    rows = [row for row in MESSAGES if "key of the same run" not in row["source"]]
    text = "\n".join(f"error: {row['text']}" for row in rows)
    calls = [call for row in rows for call in find_denied_calls(row["text"])]
    assert find_denied_calls(f"{text}\n{text}") == tuple(dict.fromkeys(calls))


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        (
            DeniedCall("fsx:X", "arn:1", PolicyKind.BOUNDARY, '{"Effect": "Allow"}'),
            ["denied: fsx:X on arn:1, by a permissions boundary", "  fix: allow it in the permissions boundary", "  {"],
        ),
        (
            DeniedCall("fsx:X", "", PolicyKind.IDENTITY, "", is_explicit=True),
            ["denied: fsx:X, by an identity-based policy", "  fix: change the Deny statement"],
        ),
        (DeniedCall("kms:X", "", PolicyKind.UNKNOWN, "{}", wait_seconds=300), ["denied", "  fix: wait 300 seconds"]),
        (DeniedCall("", "", PolicyKind.UNKNOWN, ""), ["denied: a call, by a policy that", "  fix: aws cloudtrail"]),
        (DeniedCall("", "", PolicyKind.UNKNOWN, "", encoded="abc"), ["denied", "  fix: aws sts decode-auth"]),
        (DeniedCall("sts:AssumeRole", "", PolicyKind.TRUST, ""), ["denied", "  fix: change the role's trust policy"]),
    ],
)
def test_lines_name_the_policy_and_its_remedy(call, lines):
    shown = list(format_denied_calls([call]))
    assert len(shown) == len(lines)
    assert all(line.startswith(start) for line, start in zip(shown, lines, strict=True)), shown
