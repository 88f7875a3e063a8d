"""Posting against a server that answers as GitHub, GitLab and Bitbucket do."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from trainium_eks.operate.review import posting
from trainium_eks.operate.review.posting import PostingError

MARKER = "<!-- trn-preview:trainium-eks/dev -->"
PAGE = 3
BOT = "github-actions[bot]"


@dataclass
class Platform:
    """One pull request's comments, and what is wrong with the server."""

    name: str
    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    failing: list[int] = field(default_factory=list)
    """Statuses of the next answers."""
    not_ours: set[int] = field(default_factory=set)
    next_host: str = ""
    redirect: str = ""

    def add(self, text: str, author: str = BOT) -> int:
        body = {"content": {"raw": text}} if self.name == "bitbucket" else {"body": text}
        self.comments.append({"id": len(self.comments) + 1, "user": {"login": author}, **body})
        return len(self.comments)

    def texts(self) -> list[str]:
        return [each["content"]["raw"] if self.name == "bitbucket" else each["body"] for each in self.comments]

    def post(self, text: str) -> str:
        environment = {
            "GITHUB_TOKEN": "t0ken", "GITHUB_REPOSITORY": "org/repo", "GITHUB_API_URL": self.url,
            "GITLAB_TOKEN": "t0ken", "CI_PROJECT_ID": "42", "CI_API_V4_URL": self.url,
            "BITBUCKET_TOKEN": "t0ken", "BITBUCKET_REPO_FULL_NAME": "org/repo", "BITBUCKET_API_URL": self.url,
        }  # fmt: skip
        return posting.post(posting.place(self.name, 7, environment), text, pause=lambda _: None)


_LISTS = {
    "github": "/repos/org/repo/issues/7/comments",
    "gitlab": "/projects/42/merge_requests/7/notes",
    "bitbucket": "/repositories/org/repo/pullrequests/7/comments",
}
_ONE = {
    "github": "/repos/org/repo/issues/comments/",
    "gitlab": _LISTS["gitlab"] + "/",
    "bitbucket": _LISTS["bitbucket"] + "/",
}
_EDIT = {"github": "PATCH", "gitlab": "PUT", "bitbucket": "PUT"}


def _handler(state: Platform) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
            state.asked.append((self.command, path))
            state.tokens.add(self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN") or "")
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            if state.redirect:
                self._send(307, {}, {"Location": state.redirect})
            elif state.failing:
                self._send(state.failing.pop(0), {"message": "no"}, {"Retry-After": "1"})
            elif self.command == "GET" and path == _LISTS[state.name]:
                self._page(int(query.get("page", ["1"])[0]))
            elif self.command == "POST" and path == _LISTS[state.name]:
                state.comments.append({"id": len(state.comments) + 1, "user": {"login": BOT}, **body})
                self._send(201, state.comments[-1])
            elif self.command == _EDIT[state.name] and (
                found := re.fullmatch(re.escape(_ONE[state.name]) + r"(\d+)", path)
            ):
                number = int(found[1])
                if number in state.not_ours:
                    self._send(403, {"message": "not yours"})
                else:
                    state.comments[number - 1].update(body)
                    self._send(200, state.comments[number - 1])
            else:
                self._send(404, {})

        def _page(self, page: int) -> None:
            part = state.comments[(page - 1) * PAGE : page * PAGE]
            more = page * PAGE < len(state.comments)
            following = f"{state.next_host or state.url}{_LISTS[state.name]}?page={page + 1}"
            if state.name == "bitbucket":
                self._send(200, {"values": part, **({"next": following} if more else {})})
            else:
                link = f'<{state.url}/first>; rel="first", <{following}>; rel="next"' if more else ""
                self._send(200, part, {"Link": link})

        def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

        do_GET = do_POST = do_PUT = do_PATCH = _answer  # noqa: N815 - http.server's names

    return Handler


@pytest.fixture
def served() -> Iterator[Callable[[str], Platform]]:
    servers = []

    def serve(name: str) -> Platform:
        state = Platform(name)
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
        state.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return state

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(params=["github", "gitlab", "bitbucket"])
def platform(request: pytest.FixtureRequest, served: Callable[[str], Platform]) -> Platform:
    return served(request.param)


def test_the_first_run_adds_and_the_next_replaces(platform: Platform) -> None:
    platform.add("hello", "somebody")
    assert platform.post(f"{MARKER}\nfirst") == "added"
    assert platform.post(f"{MARKER}\nsecond") == "replaced"
    assert platform.texts() == ["hello", f"{MARKER}\nsecond"]


def test_it_is_found_on_a_later_page(platform: Platform) -> None:
    for index in range(3 * PAGE + 1):
        platform.add(f"comment {index}", "somebody")
    number = platform.add(f"{MARKER}\r\nold")
    platform.add("later", "somebody")
    assert platform.post(f"{MARKER}\nnew") == "replaced"
    assert platform.texts()[number - 1] == f"{MARKER}\nnew"
    assert len([each for each in platform.asked if each[0] == "GET"]) == 4


def test_another_stacks_comment_is_left_alone(platform: Platform) -> None:
    platform.add("<!-- trn-preview:trainium-eks/dev2 -->\nother")
    platform.add(f"see `{MARKER}`\n{MARKER}")
    assert platform.post(f"{MARKER}\nmine") == "added"
    assert len(platform.comments) == 3


def test_the_token_goes_in_a_header_alone(platform: Platform) -> None:
    platform.post(f"{MARKER}\nx")
    assert platform.tokens in ({"Bearer t0ken"}, {"t0ken"})
    assert "t0ken" not in str(platform.asked)


def test_a_strangers_comment_with_our_marker_stays_theirs(served: Callable[[str], Platform]) -> None:
    github = served("github")
    github.add(f"{MARKER}\nSAFE", "stranger")
    assert github.post(f"{MARKER}\nBLOCKED") == "added"
    assert github.texts() == [f"{MARKER}\nSAFE", f"{MARKER}\nBLOCKED"]


def test_a_comment_that_we_may_not_edit_is_passed_over(platform: Platform) -> None:
    platform.not_ours.add(platform.add(f"{MARKER}\ntheirs"))
    platform.add(f"{MARKER}\nours")
    assert platform.post(f"{MARKER}\nnew") == "replaced"
    assert platform.texts() == [f"{MARKER}\ntheirs", f"{MARKER}\nnew"]


def test_a_busy_server_is_asked_again(platform: Platform) -> None:
    platform.failing = [503, 429]
    assert platform.post(f"{MARKER}\nx") == "added"
    assert len(platform.comments) == 1


def test_a_refusal_names_what_was_asked_and_not_the_token(platform: Platform) -> None:
    platform.failing = [401]
    with pytest.raises(PostingError, match=r"GET 127\.0\.0\.1:\d+/.*: 401 Unauthorized") as caught:
        platform.post(f"{MARKER}\nx")
    assert "t0ken" not in str(caught.value)


def test_the_token_follows_no_redirect(served: Callable[[str], Platform]) -> None:
    github, elsewhere = served("github"), served("github")
    github.redirect = elsewhere.url + "/repos/org/repo/issues/7/comments"
    with pytest.raises(PostingError, match="307"):
        github.post(f"{MARKER}\nx")
    assert elsewhere.asked == []


def test_the_token_follows_no_page_to_another_host(platform: Platform, served: Callable[[str], Platform]) -> None:
    elsewhere = served(platform.name)
    platform.next_host = elsewhere.url
    for index in range(PAGE + 1):
        platform.add(f"comment {index}", "somebody")
    with pytest.raises(PostingError, match="another host"):
        platform.post(f"{MARKER}\nx")
    assert elsewhere.asked == []


def test_a_server_that_is_not_there_is_named(served: Callable[[str], Platform]) -> None:
    github = Platform("github", "http://127.0.0.1:9")
    with pytest.raises(PostingError, match=r"GET 127\.0\.0\.1:9"):
        github.post(f"{MARKER}\nx")


@pytest.mark.parametrize(
    ("name", "environment", "request_", "said"),
    [
        ("github", {}, 7, "GITHUB_TOKEN is not set"),
        ("github", {"GITHUB_TOKEN": "t"}, 7, "GITHUB_REPOSITORY is not set"),
        ("github", {"GITHUB_TOKEN": "t", "GITHUB_REPOSITORY": "a/b"}, None, "--request"),
        ("gitlab", {"GITLAB_TOKEN": "t", "CI_PROJECT_ID": "1", "CI_MERGE_REQUEST_IID": "../x"}, None, "--request"),
    ],
)
def test_what_is_missing_is_named(name: str, environment: dict[str, str], request_: int | None, said: str) -> None:
    with pytest.raises(PostingError, match=said):
        posting.place(name, request_, environment)


def test_runners_name_the_request() -> None:
    environment = {"GITLAB_TOKEN": "t", "CI_PROJECT_ID": "a/b", "CI_MERGE_REQUEST_IID": "9"}
    assert posting.place("gitlab", None, environment).one == "/projects/a%2Fb/merge_requests/9/notes/{id}"
