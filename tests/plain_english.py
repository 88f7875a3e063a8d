"""Plain English: ``make lint`` fails when too many names or sentences contain words that the list below has.

``python tests/plain_english.py --show`` shows them. Names are those of functions and classes; sentences those of
docstrings, help texts, descriptions of config keys and pages. Test names may have 70 characters.
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("components", "trainium_eks", "workloads", "tests", "examples", "docs", "README.md", "CONTRIBUTING.md")

MOST = {"name": 0.005, "sentence": 0.003}
LONGEST_TEST_NAME = 70

# A participle or a pronoun in place of an object: `told`, `what_is_gone`, `nobody_waits`.
_NAMES = re.compile(
    r"(?:^|_)(?:what|whose|whoever|told|untold|said|gone|such|nobody|somebody|anybody|anew|beneath)(?:_|$)"
)
# Idioms with a plain word beside each: say that one.
_SENTENCES = {
    "nobody, somebody, anybody": ("no user, another owner", r"\b(?:no|some|any)body\b"),
    "is told, is said": ("is reported, gets, prints", r"\b(?:is|are|was|were|be|been) (?:told|said)\b"),
    "says so": ("reports it", r"\bsays? so\b"),
    "of its own": ("separate, its own ...", r"\bof (?:its|their|one's) own\b"),
    "stands in, beside": ("is in, replaces, is next to", r"\bstands? (?:in|beside|below|above|there)\b"),
    "goes with": ("is deleted with, belongs to", r"\bgoes with\b"),
    "jobs that go on": ("running jobs", r"\bthat (?:go|goes) on\b"),
    "in its place": ("instead", r"\bin (?:its|their) place\b"),
    "takes it away": ("removes it", r"\btakes? (?:it|them) away\b"),
    "besides": ("also, in addition", r"\bbesides[,;.]"),
    "likewise, beneath": ("also, below", r"\b(?:likewise|beneath)\b"),
}


def words_of(file):
    """Yield each name and sentence of a file: its kind, whether it is plain, and its text with the remedy."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        yield from _sentences(re.sub(r"^```.*?^```|^#.*?$", "", text, flags=re.M | re.S))
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            long = node.name.startswith("test_") and len(node.name) > LONGEST_TEST_NAME
            yield "name", not _NAMES.search(node.name) and not long, node.name
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _sentences(ast.get_docstring(node) or "")
        if (
            isinstance(node, ast.keyword)
            and node.arg in ("help", "description")
            and isinstance(node.value, ast.Constant)
        ):
            yield from _sentences(str(node.value.value))


def _sentences(text):
    for sentence in re.split(r"(?<=[.!?:;|])\s+|\n\n+|\n(?=[-|*])", text):
        if words := " ".join(sentence.split()).strip("|- "):
            found = [f"{name} -> {plain}" for name, (plain, form) in _SENTENCES.items() if re.search(form, words, re.I)]
            yield "sentence", not found, f"{words} [{'; '.join(found)}]"


def main():
    """Show the names, or the sentences, that are not plain when they are more than the limit; return 1 then."""
    found = {"name": [], "sentence": []}
    for place in map(ROOT.joinpath, PLACES):
        for file in sorted({*place.rglob("*.py"), *place.rglob("*.md")} if place.is_dir() else {place}):
            for kind, is_plain, text in words_of(file):
                found[kind].append("" if is_plain else f"{file.relative_to(ROOT)}: {text}\n")
    bad = {kind: list(filter(None, lines)) for kind, lines in found.items()}
    failed = [kind for kind in MOST if "--show" in sys.argv or len(bad[kind]) > MOST[kind] * len(found[kind])]
    for kind in failed:
        sys.stderr.write("".join(bad[kind]))
        sys.stderr.write(
            f"{len(bad[kind])} of {len(found[kind]):,} {kind}s are not plain; the limit is {MOST[kind]:.1%}\n"
        )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
