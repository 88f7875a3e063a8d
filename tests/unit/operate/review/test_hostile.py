"""Names, values and messages that a stranger chose: none of them gets out of its code span, no secret gets in, and a
huge change stays below the platform's limit, keeps its beginning, and is written in seconds."""

import html
import re
import time
from dataclasses import replace

import pytest
from hand_built import PREFIX, STACK, environment
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from trainium_eks.model.finding import Finding, Status
from trainium_eks.model.validation.problems import Problem
from trainium_eks.operate.review import comment, review, safe_text
from trainium_eks.operate.review.comment import PLATFORMS
from trainium_eks.operate.review.review import Refusal, Review
from trainium_eks.operate.review.scrubbing import SCRUBBED, Scrubber, scrubber
from trainium_eks.plan.graph import Graph, Resource

HOSTILE = [
    "@somebody look",
    "`@somebody`",
    "``` \n# BIG\n@somebody",
    "</details><img src=x onerror=alert(1)>",
    "<!-- trn-preview:trainium-eks/prod -->",
    "[SAFE](https://evil.example)",
    "![x](https://evil.example/pixel.png)",
    "a | b | c\n| --- |",
    "line\r\n### SAFE\n\n- fixes #1, closes org/repo#2",
    "https://evil.example www.evil.example x@evil.example",
    "/merge",
    "\u202egnirts desrever\u202c \u200b\u2066x\u2069",
    "\x1b[31mred\x1b[0m\x00\x07",
    "z\u0351\u0351\u0351\u0351\u0351\u0351\u0351algo",
    "\ud800 lone",
    "$(rm -rf /) ${{ github.token }} ::set-output name=x::y",
    "*bold* _it_ ~~no~~ :tada:",
    "a" * 5000,
]

SECRETS = [
    "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "github_pat_11ABCDEFG0123456789_abcdefghijklmnop",
    "glpat-0123456789abcdefghij",
    "xoxb-123456789012-abcdefghij",
    "pul-0123456789abcdef0123456789abcdef01234567",
    "hf_abcdefghijklmnopqrstuvwxyzABCD",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefghijklmnop",
    "postgres://admin:hunter2hunter2@db.example/x",
    "password=correct-horse-battery",
    "Authorization: Bearer abcdefghijklmnop",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
]


def _graph(name, value, type_="aws:eks/nodeGroup:NodeGroup", key="description"):
    extra = Resource(
        f"{PREFIX}{type_}::{name}", type_, name, parent=STACK, inputs={key: value, "tags": {name[:20]: "x"}}
    )
    built = environment()
    return replace(built, resources=(*built.resources, extra), placeholders=(name,), unjudged=(name,))


def _written(name, value, platform="github", **options):
    before, after = _graph(name, "old", **options), _graph(name, value, **options)
    after = replace(after, resources=tuple(each for each in after.resources if each.name != "sts"))
    compared = review.of_plans(before, after)
    checks = (Finding(Status.FAIL, name, name, name, name),)
    refused = Refusal(name, (Problem(name, name, name, value=name, allowed=(name,), good=name, rule="R29"),), name)
    judged = Review("trainium-eks", "dev", "offline", name, compared, refused, checks=checks, commit=name)
    return comment.render(judged, PLATFORMS[platform], Scrubber())


def _outside_code(text):
    """What a reader's browser gets outside code, with the tags."""
    shown = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    return html.unescape(re.sub(r"<(code|pre)\b.*?</\1>", "", shown, flags=re.DOTALL))


_TAGS = {
    *("h3", "p", "table", "thead", "tbody", "tr", "th", "td", "strong", "br"),
    *("ul", "li", "sub", "details", "summary"),
}


@pytest.mark.parametrize("text", HOSTILE, ids=list(map(str, range(len(HOSTILE)))))
@pytest.mark.parametrize("platform", sorted(PLATFORMS))
def test_hostile_text_cannot_leave_its_code_span(text, platform):
    written = _written(text, text, platform)
    shown = _outside_code(written)
    assert [words for words in ("somebody", "evil", "#1", "onerror") if words in shown] == []
    assert set(re.findall(r"<([a-z0-9]+)", shown)) <= _TAGS
    assert written.count("trn-preview:trainium-eks/dev") == 1
    assert written.splitlines()[0].find("trn-preview:trainium-eks/dev") > 0
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", written)
    assert not re.search(r"^/\w", written, re.MULTILINE), "GitLab runs a line that begins with a slash"
    assert len(written) < PLATFORMS[platform].most_characters


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.text(max_size=60))
def test_any_name_keeps_the_comments_structure(name):
    text = _written(name, name)
    shown = _outside_code(text)
    assert set(re.findall(r"<([a-z0-9]+)", shown)) <= _TAGS
    rows = [line for line in text.split("```diff")[0].splitlines() if line.startswith("|")]
    widths = {line.count("|") for line in rows}
    assert widths <= {5, 6, 7}, "a row has as many cells as its head"


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("key", ["description", "userData", "values"])
def test_comment_contains_no_secret(secret, key):
    bare = secret.split("=")[-1].split(" ")[-1]
    text = _written("plain", {"a": [f"x {secret} y"]} if key == "values" else secret, key=key)
    for part in (secret, bare, "hunter2", "MIIEow"):
        assert part not in text
    assert SCRUBBED in text


@pytest.mark.parametrize("key", ["password", "dbPassword", "secret", "token", "apiKey", "api_key", "privateKey"])
def test_secret_is_recognised_by_its_name(key):
    assert "plainword" not in _written("plain", "plainword", key=key)
    assert "plainword" not in _written("plain", {key: "plainword"}, key="settings")
    assert "plainword" not in _written("plain", [{"name": key.upper(), "value": "plainword"}], key="env")
    # Data of Kubernetes' secrets.
    assert "cGxhaW4=" not in _written("s", {"a": "cGxhaW4="}, type_="kubernetes:core/v1:Secret", key="data")


def test_account_ids_are_shortened_and_plain_names_are_shown():
    names = "optional trn-dev-cluster-trn1-32xl-ng1-template ami-0123456789abcdef0 [secret]"
    for text in (*names.split(), "sha256:" + "0123456789abcdef" * 4):
        assert text in _written("plain", text)
        assert text in _written("plain", {"httpTokens": text}, key="metadataOptions")
    arn = "arn:aws:iam::111122223333:role/r"
    assert "…3333:role/r" in _written("plain", arn)
    assert "111122223333" not in _written("plain", arn)
    own = scrubber([Graph("p", "s", (), {}, {"allowedAccountIds": ["444455556666"]})])
    assert own.text("account 444455556666, build 777788889999") == "account …6666, build 777788889999"
    assert own.text("111122223333.dkr.ecr.us-west-2.amazonaws.com/x").startswith("…3333.dkr")
    shown = scrubber([], show_accounts=True)
    assert shown.text(arn) == arn
    # The caller's own patterns are blanked, and plain words stay prose.
    assert scrubber([], [r"proj-\d+"]).text("see proj-123") == f"see {SCRUBBED}"
    for words, said in {
        "wanted 2 zones, got 1.": "wanted 2 zones, got 1.",
        "ask @me": "`ask @me`",
        "set `way_in`, or `a@b`": "set `way_in`, or `a@b`",
        "an `odd one": "`an 'odd one`",
        "/merge": "`/merge`",
        "`a` @me `b`": "`'a' @me 'b'`",
    }.items():
        assert safe_text.sentence(words) == said


_TYPES = ("aws:s3/bucket:Bucket", "aws:iam/role:Role", "kubernetes:core/v1:ConfigMap", "aws:eks/nodeGroup:NodeGroup")


def _many(count, value):
    inputs = {"bucket": value, "description": value * 30, "data": {f"k{each}": value for each in range(5)}}
    names = (f"resource-with-a-long-name-{index:05}" for index in range(count))
    each_name = ((type_, name) for name in names for type_ in _TYPES)
    more = (Resource(f"{PREFIX}{type_}::{name}", type_, name, STACK, inputs=inputs) for type_, name in each_name)
    built = environment()
    return replace(built, resources=tuple(sorted((*built.resources, *more), key=lambda each: each.urn)))


def _review(before, after):
    return Review("trainium-eks", "dev", "offline", "main", comparison=review.of_plans(before, after))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "platform"), [(60, "github"), (60, "gitlab"), (60, "bitbucket"), (800, "github")])
def test_a_huge_change_is_cut_in_the_middle(count, platform):
    before, after = _many(count, "old"), _many(count, "new-é")
    began = time.process_time()
    text = comment.render(_review(before, after), PLATFORMS[platform], Scrubber())
    assert time.process_time() - began < 60  # far less, and for ever where it grows with the square
    assert len(text) <= PLATFORMS[platform].most_characters
    assert len(text) > PLATFORMS[platform].most_characters * 0.8, "what there is room for is used"
    assert "– BLOCKED" in text.splitlines()[2]
    assert "lines left out …" in text
    block = text.split("```diff\n")[1].split("```")[0].splitlines()
    assert block[0].startswith("@@")
    place = next(index for index, line in enumerate(block) if "left out" in line)
    assert abs(place - len(block) / 2) <= 2, "the middle is left out"
    assert "more risks" in text
    assert text.count("```") == 2


def test_a_huge_value_or_traceback_is_cut():
    before, after = _many(1, "old"), _many(1, "x" * 1_000_000)
    began = time.process_time()
    text = comment.render(_review(before, after), PLATFORMS["github"], Scrubber())
    assert time.process_time() - began < 60  # far less, and for ever where it grows with the square
    assert len(text) < 20_000
    refused = Refusal("it failed", detail="line `x`\n" * 100_000)
    judged = Review("trainium-eks", "dev", "offline", "main", refusal=refused)
    text = comment.render(judged, PLATFORMS["github"], Scrubber())
    assert len(text) <= 60_000
    assert "The program cannot be planned" in text
    # A name that Pulumi does not take is refused.
    for name in ("", "a/b", "x -->", "a" * 101, "é"):
        with pytest.raises(ValueError, match="is not the name"):
            comment.render(replace(judged, stack=name), PLATFORMS["github"], Scrubber())
