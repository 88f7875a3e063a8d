"""Secrets and account ids that a comment must not show.

Values that the program marks as secret arrive as ``[secret]`` and stay so. A plain value that merely looks like a
credential, or stands under a name that says it is one, is no secret to Pulumi and is printed by every preview: here it
is blanked. Account ids are shortened to their last four digits.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log2
from typing import Any

from trainium_eks.plan.graph import SECRET, Graph

SCRUBBED = "[scrubbed]"

# Every repetition is bounded where another could begin inside it: values are a stranger's.
_TOKENS = re.compile(
    r"(?:AKIA|ASIA|AIDA|AROA)[A-Z0-9]{12,}"  # AWS access keys and unique ids
    r"|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{16,}"
    r"|gl(?:pat|ptt|rt|cbt|dt)-[\w-]{16,}|ATATT[\w=-]{20,}|ATCTT[\w=-]{20,}"
    r"|xox[abeoprs]-[\w-]{10,}|pul-[0-9a-f]{32,}|hf_[A-Za-z0-9]{20,}|nvapi-[\w-]{20,}|sk-[\w-]{20,}"
    r"|AIza[\w-]{30,}|dop_v1_[0-9a-f]{40,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|dckr_pat_[\w-]{16,}"
    r"|eyJ[\w-]{10,}(?:\.[\w-]*)*"  # JSON web tokens
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*",
    re.DOTALL,
)
_LOGIN = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]{0,30}://)[^\s/@:]{0,200}:[^\s/@]{1,400}@", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"(?P<name>(?:pass(?:word|wd|phrase)|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential)[\w-]{0,40}"
    r"[\"']?\s{0,3}[:=]\s{0,3}[\"']?)(?!\[secret\]|\[unknown\])(?P<value>[^\s\"',;]{6,})",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<scheme>\b(?:Bearer|Basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_ACCOUNT = re.compile(
    r"(?P<before>arn:aws[\w-]{0,20}:[\w-]{0,40}:[\w-]{0,40}:)(?P<id>\d{12})(?=:)|(?<![\w.-])(?P<host>\d{12})(?=\.dkr\.ecr)"
)
_NAMED_SECRET = re.compile(
    r"(?:password|passwd|passphrase|secret|token|apikey|accesskey|privatekey|credentials?)(?:value|string|data)?$"
)
_LONG = re.compile(r"[A-Za-z0-9+/=_-]{32,}")
_BITS = 4.3
"""Bits of a character from which a long word is taken for random: hexadecimal digests have 4 at most, names less."""

WINDOW = 4000
"""Characters of a value that are looked at; far more than is shown of any."""


@dataclass(frozen=True)
class Scrubber:
    """Scrubber of one environment's values."""

    accounts: frozenset[str] = frozenset()
    """Account ids that are shortened in every place; besides, any in an ARN or in the name of a registry."""
    patterns: tuple[re.Pattern[str], ...] = ()
    show_accounts: bool = False

    def text(self, text: str) -> str:
        """Return the text with its likely credentials blanked."""
        text = text[:WINDOW]
        for pattern in self.patterns:
            text = pattern.sub(SCRUBBED, text)
        text = _TOKENS.sub(SCRUBBED, text)
        text = _LOGIN.sub(rf"\g<scheme>{SCRUBBED}@", text)
        text = _ASSIGNED.sub(rf"\g<name>{SCRUBBED}", text)
        text = _BEARER.sub(rf"\g<scheme>{SCRUBBED}", text)
        text = _LONG.sub(lambda found: SCRUBBED if _random(found[0]) else found[0], text)
        if self.show_accounts:
            return text
        text = _ACCOUNT.sub(lambda found: (found["before"] or "") + shortened(found["id"] or found["host"]), text)
        for account in self.accounts:
            text = text.replace(account, shortened(account))
        return text

    def named(self, type_: str, path: str, text: str) -> str:
        """Return a value's text, blanked in the data of a Kubernetes Secret, and under a credential's name."""
        if not text or text in (SECRET, "(none)"):
            return text
        under_secret = type_ == "kubernetes:core/v1:Secret" and path.split(".", 1)[0] in ("data", "stringData")
        last = re.sub(r"\[\d+\]|[^a-z]", "", path.rpartition(".")[2].lower())
        return SCRUBBED if under_secret or _NAMED_SECRET.search(last) else self.text(text)

    def value(self, type_: str, path: str, value: Any) -> Any:
        """Return a value with everything in it blanked that :meth:`named` would blank."""
        if isinstance(value, Mapping):
            if value.get("name") and _NAMED_SECRET.search(re.sub("[^a-z]", "", str(value["name"]).lower())):
                value = {**value, **({"value": SCRUBBED} if value.get("value") else {})}
            return {key: self.value(type_, f"{path}.{key}", inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(type_, path, inner) for inner in value]
        return self.named(type_, path, value) if isinstance(value, str) else value


def scrubber(graphs: Iterable[Graph], patterns: Iterable[str] = (), *, show_accounts: bool = False) -> Scrubber:
    """Return a scrubber for the environment of these programs: their configs name its accounts."""
    accounts: set[str] = set()
    for graph in graphs:
        named = graph.config.get("allowedAccountIds")
        accounts.update(str(each) for each in named or () if re.fullmatch(r"\d{12}", str(each)))
    return Scrubber(frozenset(accounts), tuple(re.compile(each) for each in patterns), show_accounts)


def shortened(account: str) -> str:
    """Return ``…3333``."""
    return f"…{account[-4:]}"


def _random(word: str) -> bool:
    """Return whether a long word mixes capitals, small letters and digits as evenly as keys do."""
    kinds = (any(map(str.islower, word)), any(map(str.isupper, word)), any(map(str.isdigit, word)))
    if not all(kinds):
        return False
    counts = [word.count(letter) for letter in set(word)]
    return -sum(count / len(word) * log2(count / len(word)) for count in counts) >= _BITS
