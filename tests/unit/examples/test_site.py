"""The web site: built strictly, complete, and with the same blocks as the pages have on a code host."""

import re
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv" / "site" / "bin" / "python"
BLOCKS = {"blockquote", "h1", "h2", "h3", "h4", "img", "li", "ol", "pre", "table", "tr", "ul"}


class Page(HTMLParser):
    """Blocks within an element (all of them without one), and the links and files that the page loads."""

    def __init__(self, text, element=""):
        super().__init__()
        self.blocks = Counter()
        self.targets = []
        self.loaded = []
        self._element, self._depth = element, 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._depth += tag == self._element
        if tag in BLOCKS and (self._depth or not self._element):
            self.blocks[tag] += 1
        values = dict(attrs)
        if tag == "a" and values.get("href"):
            self.targets.append(str(values["href"]))
        if tag in ("img", "link", "script") and (source := values.get("src") or values.get("href")):
            self.loaded.append(source)

    def handle_endtag(self, tag):
        self._depth -= tag == self._element


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not PYTHON.exists():
        pytest.skip("the site's tools are not installed: `make site` brings them")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([PYTHON, "docs/build_site.py", folder], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def built(site):
    for file in sorted((site / "html").rglob("*.html")):
        if file.name != "404.html":
            yield file, Page(file.read_text(), "article")


def test_site_has_no_broken_link_and_loads_nothing_external(site):
    missing, foreign = [], []
    for file, page in built(site):
        foreign += [f"{file.name}: {each}" for each in page.loaded if urlsplit(each).netloc]
        for target in (each for each in page.targets + page.loaded if not urlsplit(each).scheme):
            path = unquote(urlsplit(target).path)
            found = (file.parent / path) if path else file
            if not (found.is_file() or (found / "index.html").is_file()):
                missing.append(f"{file.relative_to(site / 'html')}: {target}")
    assert (missing, foreign) == ([], [])


def test_page_has_the_same_blocks_as_its_markdown(site):
    """Python-Markdown wants four spaces before a list's inner blocks, and an empty line before a list."""
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    differ = {}
    for source in (site / "pages").rglob("*.md"):
        place = source.relative_to(site / "pages")
        if place.parts[0] == "api":
            continue
        here = Page(markdown.render(source.read_text())).blocks
        page = (site / "html" / place).with_name("index.html" if place.name == "README.md" else f"{place.stem}.html")
        there = Page(page.read_text(), "article").blocks
        if here != there:
            differ[str(place)] = {name: (here[name], there[name]) for name in BLOCKS if here[name] != there[name]}
    assert differ == {}


def test_each_page_is_in_the_navigation_and_the_api_has_docstrings(site):
    listed = set(re.findall(r'"([\w/.-]+\.md)"', (site / "zensical.toml").read_text()))
    assert listed == {str(file.relative_to(site / "pages")) for file in (site / "pages").rglob("*.md")}
    text = (site / "html" / "api" / "AcceleratorNodeGroup.html").read_text()
    assert "A managed node group with a launch template" in text
    assert "max_size" in text, "an arg of the config's section"
    assert not re.search(":class:|``", text)
    assert "api/AcceleratorNodeGroup.html" in (site / "html" / "search.json").read_text()
