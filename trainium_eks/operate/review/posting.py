"""Posting of a comment on a pull request, in place of an earlier run's comment.

Standard library only. The token comes from the environment and goes to the API's own address alone: redirects are not
followed, and a next page on another host is refused.
"""

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any
from urllib.parse import quote, urlsplit

from trainium_eks.model.validation.parsing import parse_json

TIMEOUT_SECONDS = 30.0
TRIES = 4
MOST_PAGES = 100
"""Most pages of comments that are read; nobody reads a request with more."""
_PAGE = 100
_LATER = (429, 500, 502, 503, 504)
_NOT_OURS = (403, 404)


class PostingError(Exception):
    """The comment could not be posted. The message gives the address and the platform's answer."""


@dataclass(frozen=True)
class PullRequest:
    """The API addresses and formats of one pull request's comments, on one platform."""

    base: str
    """The API's address, without a slash at the end."""
    comments: str
    """Path of the list; new comments are posted to it."""
    one: str
    """Path of one comment; ``{id}`` stands for its id."""
    edit: str
    """The HTTP method that replaces a comment."""
    headers: Mapping[str, str]
    body: Callable[[str], Mapping[str, Any]]
    """Return the request body for a text."""
    text: Callable[[Mapping[str, Any]], str]
    """Return the text of a listed comment."""
    ours: Callable[[Mapping[str, Any]], bool]
    """Return whether a listed comment may be ours to replace."""


# --- platforms ----------------------------------------------------------------------------------------------------

_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "github": ("GITHUB_TOKEN", "GITHUB_REPOSITORY"),
    "gitlab": ("GITLAB_TOKEN", "CI_PROJECT_ID"),
    "bitbucket": ("BITBUCKET_TOKEN", "BITBUCKET_REPO_FULL_NAME"),
}
_REQUEST: Mapping[str, str] = {"github": "", "gitlab": "CI_MERGE_REQUEST_IID", "bitbucket": "BITBUCKET_PR_ID"}
"""Variable with the request's number on the platform's own runner."""


def place(platform: str, request: int | None, environment: Mapping[str, str]) -> PullRequest:
    """Return the API addresses of a pull request's comments, from the token and the variables of the platform's runner.

    Args:
        platform: ``github``, ``gitlab`` or ``bitbucket``.
        request: the pull request's number; None takes the runner's variable (``CI_MERGE_REQUEST_IID``,
            ``BITBUCKET_PR_ID``).
        environment: ``os.environ``.

    Raises:
        PostingError: naming the variable that is missing.
    """
    for name in _SETTINGS[platform]:
        if not environment.get(name):
            raise PostingError(f"{name} is not set: posting to {platform} needs {' and '.join(_SETTINGS[platform])}")
    number = str(request) if request else environment.get(_REQUEST[platform] or "-", "")
    if not re.fullmatch(r"[1-9]\d{0,9}", number):
        raise PostingError("which pull request? Give its number with --request")
    token, repository = (environment[name] for name in _SETTINGS[platform])
    if platform == "github":
        return _github(environment, token, repository, number)
    if platform == "gitlab":
        return _gitlab(environment, token, repository, number)
    return _bitbucket(environment, token, repository, number)


def _github(environment: Mapping[str, str], token: str, repository: str, number: str) -> PullRequest:
    # GitHub's token may edit whatever stands in the repository: a stranger's comment with our marker must stay theirs.
    author = environment.get("COMMENT_AUTHOR") or "github-actions[bot]"
    return PullRequest(
        base=environment.get("GITHUB_API_URL", "https://api.github.com").rstrip("/"),
        comments=f"/repos/{quote(repository)}/issues/{number}/comments?per_page={_PAGE}",
        one=f"/repos/{quote(repository)}/issues/comments/{{id}}",
        edit="PATCH",
        headers={"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"},
        body=lambda text: {"body": text},
        text=lambda comment: str(comment.get("body") or ""),
        ours=lambda comment: (comment.get("user") or {}).get("login") == author,
    )


def _gitlab(environment: Mapping[str, str], token: str, project: str, number: str) -> PullRequest:
    notes = f"/projects/{quote(project, safe='')}/merge_requests/{number}/notes"
    return PullRequest(
        base=environment.get("CI_API_V4_URL", "https://gitlab.com/api/v4").rstrip("/"),
        comments=f"{notes}?per_page={_PAGE}",
        one=f"{notes}/{{id}}",
        edit="PUT",
        headers={"PRIVATE-TOKEN": token},
        body=lambda text: {"body": text},
        text=lambda note: str(note.get("body") or ""),
        ours=lambda note: not note.get("system"),
    )


def _bitbucket(environment: Mapping[str, str], token: str, repository: str, number: str) -> PullRequest:
    comments = f"/repositories/{quote(repository)}/pullrequests/{number}/comments"
    return PullRequest(
        base=environment.get("BITBUCKET_API_URL", "https://api.bitbucket.org/2.0").rstrip("/"),
        comments=f"{comments}?pagelen={_PAGE}",
        one=f"{comments}/{{id}}",
        edit="PUT",
        headers={"Authorization": f"Bearer {token}"},
        body=lambda text: {"content": {"raw": text}},
        text=lambda comment: str((comment.get("content") or {}).get("raw") or ""),
        ours=lambda comment: not comment.get("deleted"),
    )


# --- posting ------------------------------------------------------------------------------------------------------


def post(where: PullRequest, text: str, pause: Callable[[float], None] = time.sleep) -> str:
    """Replace the comment with the same first line as the text, or add one; return ``replaced`` or ``added``.

    Raises:
        PostingError: when the platform refuses.
    """
    marker = text.split("\n", 1)[0]
    for comment in _listed(where, pause):
        first = where.text(comment).lstrip().split("\n", 1)[0].rstrip()
        if first != marker or not where.ours(comment):
            continue
        path = where.one.format(id=quote(str(comment["id"]), safe=""))
        try:
            _ask(where, where.edit, f"{where.base}{path}", where.body(text), pause)
        except _Refused as refused:
            if refused.status in _NOT_OURS:
                continue  # somebody else's, or gone since it was listed
            raise
        return "replaced"
    _ask(where, "POST", f"{where.base}{where.comments.partition('?')[0]}", where.body(text), pause)
    return "added"


def _listed(where: PullRequest, pause: Callable[[float], None]) -> Iterator[Mapping[str, Any]]:
    """Yield every comment, page after page."""
    url = f"{where.base}{where.comments}"
    for _ in range(MOST_PAGES):
        answer, headers = _ask(where, "GET", url, None, pause)
        listed = answer.get("values", ()) if isinstance(answer, Mapping) else answer
        yield from (each for each in listed or () if isinstance(each, Mapping) and "id" in each)
        following = answer.get("next") if isinstance(answer, Mapping) else _next(headers)
        if not following:
            return
        if urlsplit(following)[:2] != urlsplit(where.base)[:2]:
            raise PostingError(f"the next page of comments is on another host, {urlsplit(following).netloc}")
        url = following


def _next(headers: Message) -> str:
    """Return the next page in a ``Link`` header (RFC 8288)."""
    found = re.search(r'<([^>]+)>\s*;[^,]*rel="?next"?', headers.get("Link") or "")
    return found[1] if found else ""


class _Refused(PostingError):  # noqa: N818 (what happened)
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuser of redirects, which would take the token along."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _ask(
    where: PullRequest, method: str, url: str, body: Mapping[str, Any] | None, pause: Callable[[float], None]
) -> tuple[Any, Message]:
    data = None if body is None else json.dumps(body).encode()
    headers = {**where.headers, "Content-Type": "application/json", "User-Agent": "trn-comment"}
    asked = urllib.request.Request(url, data, headers, method=method)
    opener = urllib.request.build_opener(_NoRedirects)
    shown = f"{method} {urlsplit(url).netloc}{urlsplit(url).path}"
    for tried in range(1, TRIES + 1):
        try:
            with opener.open(asked, timeout=TIMEOUT_SECONDS) as answer:
                return parse_json(answer.read() or b"null"), answer.headers
        except urllib.error.HTTPError as error:
            if error.code not in _LATER or tried == TRIES:
                said = error.read(300).decode(errors="replace").strip()
                raise _Refused(error.code, f"{shown}: {error.code} {error.reason}: {said}") from None
            wait = error.headers.get("Retry-After", "")
            pause(min(float(wait), 30.0) if wait.isdigit() else 2.0**tried)
        except (urllib.error.URLError, TimeoutError, OSError) as error:
            # Asking again could add a second comment when the first did arrive.
            if method == "POST" or tried == TRIES:
                raise PostingError(f"{shown}: {getattr(error, 'reason', error)}") from None
            pause(2.0**tried)
        except ValueError:
            raise PostingError(f"{shown}: the answer is no JSON") from None
    raise AssertionError("the last try returns or raises")
