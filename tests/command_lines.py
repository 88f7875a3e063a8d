"""The commands of trn, and whether a command line is one of theirs."""

import re
import shlex
from typing import Any

from typer.main import get_command

from trainium_eks.cli.app import app
from trainium_eks.cli.shared.command import LazyGroup

ROOT: Any = get_command(app)
_SHELL = re.compile(r"^(&&|\|\|?|;|>>?|<|2>&1|&)$")


def commands(command=ROOT, path=()):
    """Yield every command that does something, with its name's parts."""
    parts = getattr(command, "commands", None)
    if not parts:
        yield path, command
    for name in sorted(parts or {}):
        yield from commands(imported(command, name), (*path, name))


def imported(group, name):
    """Return a command of a group, imported where the group imports it when it is called."""
    return group.load(name) if isinstance(group, LazyGroup) else group.commands[name]


def words(line):
    lexer = shlex.shlex(line, posix=True, punctuation_chars="><|&;")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    kept = list(lexer)
    end = next((index for index, word in enumerate(kept) if _SHELL.match(word)), len(kept))
    return kept[:end]


def parse(arguments):
    """Parse a line without running it, and return the name of its command and what it would be called with."""
    command, rest, context = ROOT, list(arguments), None
    while getattr(command, "commands", None) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        context = command.make_context(command.name or "trn", [name], parent=context, resilient_parsing=True)
        _, command, _ = command.resolve_command(context, [name])
    if getattr(command, "commands", None):
        return str(command.name), {}
    if "--help" in rest or "--list" in rest:
        return str(command.name), {}
    return str(command.name), command.make_context(command.name, rest, parent=context).params
