"""Makes ``docs/pull-request.png``: a golden comment about as GitHub shows it. Needs Chromium.

PYTHONPATH=. python docs/pull_request_picture.py [CASE]
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "unit" / "operate" / "review" / "golden"
PICTURE = ROOT / "docs" / "pull-request.png"
WIDTH, HEIGHT = 1000, 1340

MARKS = {"⛔": "#d1242f", "🔎": "#bf8700", "✅": "#1a7f37"}
"""Not every machine has a font with them: discs of about their colour."""

STYLE = """
body { margin: 16px; font: 14px/1.5 -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, "Noto Color Emoji";
  color: #1f2328; background: #fff; }
.comment { border: 1px solid #d1d9e0; border-radius: 6px; }
.author { padding: 8px 16px; background: #f6f8fa; border-bottom: 1px solid #d1d9e0; border-radius: 6px 6px 0 0;
  color: #59636e; }
.author b { color: #1f2328; }
.text { padding: 16px; }
h3 { font-size: 1.25em; margin: 0 0 12px; }
table { border-collapse: collapse; display: block; width: max-content; max-width: 100%; margin: 0 0 16px; }
th, td { border: 1px solid #d1d9e0; padding: 6px 13px; text-align: left; }
tr:nth-child(2n) td { background: #f6f8fa; }
code { font: 85% ui-monospace, "DejaVu Sans Mono", monospace; background: #818b981f; padding: .2em .4em;
  border-radius: 6px; }
pre { background: #f6f8fa; padding: 16px; border-radius: 6px; overflow: hidden; margin: 8px 0; }
pre code { background: none; padding: 0; white-space: pre; }
sub { font-size: 75%; color: #59636e; }
summary { margin: 0 0 8px; }
"""


def page(markdown: str) -> str:
    """The comment as a page."""
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)
    for mark, color in MARKS.items():
        body = body.replace(mark, f'<b style="color: {color}">⬤</b>')
    author = "<b>github-actions</b> bot commented · edited"
    return (
        f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style>'
        f'<div class="comment"><div class="author">{author}</div><div class="text">{body}</div></div>'
    )


def main() -> int:
    """Writes the picture; 1 without Chromium."""
    browser = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
    )
    if not browser:
        sys.stderr.write("no chromium on PATH\n")
        return 1
    case = sys.argv[1] if len(sys.argv) > 1 else "instance-type"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "comment.html"
        file.write_text(page((GOLDEN / f"{case}.md").read_text()))
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--window-size={WIDTH},{HEIGHT}",
        ]
        options += [f"--user-data-dir={folder}/profile", f"--screenshot={PICTURE}", file.as_uri()]
        done = subprocess.run([browser, *options], check=False, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
