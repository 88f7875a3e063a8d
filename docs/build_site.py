"""Builder of the web site: the pages, and the API from the docstrings (`make site`). The site has the folders of the
repository, so links between pages need no rewriting.

.venv/site/bin/python docs/build_site.py [FOLDER]
"""

import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "*.md", "docs/*.md", "docs/*.svg", "docs/*.png", "docs/*.css", "docs/*.json", "docs/*.yaml",
    "docs/components/*.md", "docs/decisions/*.md", "examples/*.md", "examples/*.py",
    "examples/*/*.py", "examples/*/*/*.py", "examples/*/*.ts", "examples/*/*.yaml", "provider/*.yaml",
)  # fmt: skip
API = {
    "trainium_eks.client.team": [f"trainium_eks.client.team.{name}" for name in ("connect", "Team", "Job")],
    "trainium_eks.client.capacity": [f"trainium_eks.client.{name}" for name in ("capacity", "capacity_purchase")],
    "trainium_eks.testing": ["trainium_eks.testing"],
    "trainium_workloads": [
        f"trainium_workloads.training.{name}" for name in ("loop", "task", "options", "backends", "refusal")
    ],
}
"""Public modules besides the components, by page."""
_CODE = re.compile(r"`[^`\n]+`")
_COMMANDS = re.compile(r"^( *```)console\n(?=(?:(?! *(?:\$ |```)).*\n)* *```$)", re.MULTILINE)
"""A block of commands without a prompt and without output."""
_EXAMPLE = re.compile(r"^\[`(examples/\w+\.py)`\].*$", re.MULTILINE)
"""A line about an example, whose code the site shows below it."""
_PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")
_SHORT = 28
"""Characters of code that stay in one line."""
_PLAIN = re.compile(r"(?<!<pre>)(?<!<span></span>)<code>([^<]+)</code>")
"""Code within a sentence or a cell; that of a block stands right behind ``<pre><span></span>``."""


def main() -> int:
    """Build the site in FOLDER (default ``build/site``); return the builder's exit code."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    for source in (path for pattern in PAGES for path in ROOT.glob(pattern)):
        target = pages / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(_for_the_site(source.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(source, target)
    for title, names in {**API, **components()}.items():
        target = pages / "api" / f"{title}.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text(f"# {title}\n\n" + "".join(f"::: {name}\n\n" for name in names))
    marks = "docs/docstring_marks.py"
    config = (ROOT / "docs" / "zensical.toml").read_text().replace(f'"{marks}"', f'"{ROOT / marks}"')
    (folder / "zensical.toml").write_text(re.sub(r'"([\w/]+)/\*\.md"', _pages_in(pages), config))
    # Modules are found there and read, never imported.
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'workloads'}"}
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    for page in (folder / "html").rglob("*.html"):
        page.write_text(_PLAIN.sub(_with_breaks, page.read_text(encoding="utf-8")), encoding="utf-8")
    shown = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr).partition("Traceback")[0]
    served = f"with search: python3 -m http.server --bind 127.0.0.1 --directory {folder}/html"
    sys.stdout.write(f"{folder}/html/index.html; {served}\n" if done.returncode == 0 else shown)
    return done.returncode


def components() -> dict[str, list[str]]:
    """Return the public names by page, a component and its args on one, from the stub that lists them."""
    stub = (ROOT / "components" / "__init__.pyi").read_text()
    pages: dict[str, list[str]] = {}
    for module, name in re.findall(r"^from \.(\w+) import (\w+) as", stub, re.M):
        pages.setdefault(name.removesuffix("Args"), []).append(f"components.{module}.{name}")
    return pages


def _for_the_site(text: str) -> str:
    """Return a page with the code of its examples, highlighted commands, and pictures that lead to their full size."""
    text = _EXAMPLE.sub(lambda found: f"{found[0]}\n\n```python\n{(ROOT / found[1]).read_text()}```", text)
    text = _COMMANDS.sub(r"\1bash\n", _CODE.sub(_with_bars, text))
    return _PICTURE.sub(lambda found: f"[{found[0]}]({found[1]})", text)


def _with_bars(code: re.Match[str]) -> str:
    """Return code with plain bars: in tables GitHub needs a backslash before a bar, and this builder shows it."""
    return code[0].replace("\\|", "|")


def _with_breaks(code: re.Match[str]) -> str:
    """Return short code marked for site.css, which keeps it in one line; longer code with breaks in it."""
    if len(html.unescape(code[1])) <= _SHORT:
        return f'<code class="short">{code[1]}</code>'
    return re.sub(r"(?<=[^ ./<])(?=[./]\w)", "<wbr>", code[0])


def _pages_in(pages: Path) -> Callable[[re.Match[str]], str]:
    def listed(found: re.Match[str]) -> str:
        files = sorted((pages / found[1]).glob("*.md"), key=lambda file: (file.stem != "README", file.name))
        return ", ".join(f'"{found[1]}/{file.name}"' for file in files)

    return listed


if __name__ == "__main__":
    sys.exit(main())
