"""Writing a file as a whole or not at all: a reader, also one after a crash, sees the old content or the new."""

import os
from pathlib import Path


def write(file: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Replace a file's content in one step; no other user can read the new file before it has its mode."""
    part = file.with_name(f".{file.name}.part")
    part.unlink(missing_ok=True)
    # O_EXCL: in a directory of many users, such as /tmp, no other user can replace the part by a link.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content.encode() if isinstance(content, str) else content)
        part.chmod(mode)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
