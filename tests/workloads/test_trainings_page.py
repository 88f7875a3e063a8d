"""docs/trainings.md says what is so."""

import argparse
import re
from dataclasses import fields
from pathlib import Path

from trainium_workloads.training.options import Options, add_options

PAGE = (Path(__file__).parents[2] / "docs" / "trainings.md").read_text(encoding="utf-8")


def test_each_option_is_on_the_page_and_no_other():
    parser = argparse.ArgumentParser()
    add_options(parser, Options())
    known = {name for action in parser._actions for name in action.option_strings}
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `--"))
    named = set(re.findall(r"`(--[a-z-]+)`", table))
    assert named <= known
    missing = [
        field.name
        for field in fields(Options)
        if not {f"--{field.name.replace('_', '-')}", f"--no-{field.name}"} & named
    ]
    assert not missing


def test_the_keys_of_a_step_line_are_those_that_are_printed(gang, tmp_path):
    [shown] = re.findall(r'^\{"step".*$', PAGE, re.MULTILINE)
    [script] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "plane.py").write_text(script)
    ended = gang("plane", "--output", "out", "--checkpoint-every", 50, "--stochastic-rounding")
    assert set(re.findall(r'"(\w+)":', shown)) == ended.steps[-1].keys()
    assert ended.losses[100] < ended.losses[1] / 10
