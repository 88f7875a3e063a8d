"""What the documents say is what the code does."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    path.relative_to(ROOT) for pattern in ("*.md", "docs/**/*.md", "examples/*.md") for path in ROOT.glob(pattern)
)


def test_generated_pages_and_the_picture_of_a_plan_are_current() -> None:
    command = [sys.executable, "docs/generate.py", "--check"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shown = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr


def test_links_lead_somewhere() -> None:
    links = [
        (page, target)
        for page in PAGES
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
        if not target.startswith("http")
    ]
    assert links
    assert [f"{page}: {target}" for page, target in links if not (ROOT / page.parent / target).exists()] == []


def test_the_tests_that_a_page_shows_pass() -> None:
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
    [program] = [each for each in shown if "def test_" in each]
    found: dict[str, Any] = {}
    exec(program, found)
    shown = [value for name, value in found.items() if name.startswith("test_")]
    assert len(shown) == 2
    for each in shown:
        each()
