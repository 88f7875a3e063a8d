"""The budget of lines: ``make lint`` fails when a room has more lines than ``budget.toml`` allows.

``python tests/line_budget.py`` compares; with ``--write`` it lowers each number to what is there.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET = ROOT / "budget.toml"
FILES = {"python": "*.py", "yaml": "*.yaml", "markdown": "*.md"}


def counted(rooms, files):
    """Return the lines of each room: files that Git knows, without those of rooms inside."""
    found = dict.fromkeys(rooms, 0)
    listed = subprocess.run(["git", "ls-files", files], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for file in filter(None, listed.splitlines()):
        room = max((room for room in rooms if f"{file}/".startswith(f"{room}/")), key=len, default="")
        if (ROOT / file).exists():
            found[room] = found.get(room, 0) + (ROOT / file).read_bytes().count(b"\n")
    return found


def main():
    """Compare, and return 1 when a room has too many lines."""
    budget, over = BUDGET.read_text(encoding="utf-8"), 0
    for language, rooms in tomllib.loads(budget).items():
        lines = counted(rooms, FILES[language])
        if "--write" in sys.argv:
            for room, allowed in rooms.items():
                budget = budget.replace(f'"{room}" = {allowed}\n', f'"{room}" = {min(allowed, lines[room])}\n')
            BUDGET.write_text(budget, encoding="utf-8")
            continue
        for room, count in lines.items():
            if count > rooms.get(room, 0):
                allowed = f"{count} lines of {language}, and budget.toml allows {rooms.get(room, 0)}"
                print(f"{room or 'outside all rooms'}: {allowed}; say more with fewer, or raise it and give the reason")
                over = 1
    return over


if __name__ == "__main__":
    sys.exit(main())
