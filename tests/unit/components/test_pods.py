"""Programs of this library that pods get as files: what a pod has is enough to run them."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from components import _fabric_gate, _hypernodes, idle_guard
from components._pods import Program


@pytest.mark.parametrize("home", [_fabric_gate, _hypernodes, idle_guard])
def test_every_module_can_be_imported_with_the_standard_library_alone(home: ModuleType, tmp_path: Path) -> None:
    program: Program = home.PROGRAM
    items, sources = program.volume("code").config_map.items, program.sources()  # type: ignore[union-attr]
    for item in items:  # type: ignore[union-attr]
        file = tmp_path / item.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(sources[item.key])
    imports = "; ".join(f"import trainium_eks.{module}" for module in program.modules)
    # -S: without the packages of this environment, the library itself among them.
    command = [sys.executable, "-S", "-c", imports]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
