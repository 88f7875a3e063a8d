"""How a command ends: its exit code, and what it says; and how a function fails."""


def ends(code, result, *words):
    """Hold a command to its exit code and words, wrong usage to words on standard error; return what it said."""
    assert result.exit_code == code, result.output
    text = result.stderr if code == 2 else result.output
    flat = " ".join(text.split())
    assert [each for each in words if each not in text and each not in flat] == [], text
    return text


def raising(error):
    """Return a function that raises an error whatever it is called with."""

    def fail(*_, **__):
        raise error

    return fail
