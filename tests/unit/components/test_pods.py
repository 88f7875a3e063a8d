"""Programs of this library that pods get as files: what a pod has is enough to run them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from components import _hypernodes, idle_guard
from components._pods import Program


@pytest.mark.parametrize("program", [_hypernodes.PROGRAM, idle_guard.PROGRAM], ids=lambda each: each.folder)
def test_every_module_can_be_imported_with_the_standard_library_alone(program: Program, tmp_path: Path) -> None:
    place = tmp_path.joinpath("trainium_eks", *program.folder.split("."))
    place.mkdir(parents=True)
    for name, text in program.sources().items():
        (place / name).write_text(text)
    imports = "; ".join(f"import trainium_eks.{program.folder}.{module}" for module in program.modules)
    # -S: without the packages of this environment, the library itself among them.
    command = [sys.executable, "-S", "-c", imports]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
