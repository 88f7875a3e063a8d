"""The component without any cluster: TorchX's ``local_cwd`` scheduler runs two nodes as processes of this machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]
COMPONENT = ROOT / "workloads" / "torchx_components.py"


def _programs() -> list[str]:
    return [each for each in os.environ.get("TRN_TORCHX", "").split(os.pathsep) if Path(each).is_file()]


@pytest.mark.skipif(not _programs(), reason="no torchx: name its program in TRN_TORCHX (several: separated by colons)")
@pytest.mark.parametrize("program", _programs(), ids=lambda program: Path(program).parent.parent.name)
def test_two_nodes_agree_on_the_sum(program: str, tmp_path: Path) -> None:
    """With the launcher that needs no torch, which this machine may not have."""
    options = {
        "image": str(tmp_path),
        "module": "trainium_workloads.gradient_sum",
        "script_args": f"--steps 3 --step-seconds 0 --output {tmp_path / 'output'}",
        "nnodes": "2",
        "nproc_per_node": "1",
        "backend": "cpu",
        "launcher": "gang",
        "claim": "",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    settings = f"log_dir={tmp_path / 'logs'}"
    command = [program, "run", "--wait", "-s", "local_cwd", "-cfg", settings, f"{COMPONENT}:trainium_ddp", *words]
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "workloads"), "LOGLEVEL": "INFO"}
    environment.pop("VC_TRAINER_0_HOSTS", None)
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    said = "\n".join(file.read_text() for file in (tmp_path / "logs").rglob("*.log") if file.is_file())
    assert result.returncode == 0, f"{result.stderr}\n{said}"
    agreed = re.findall(r"rank \d: the gradients' sum is 3; 2 of 2 ranks agree", result.stderr + result.stdout + said)
    assert len(agreed) >= 2
