"""Pulumi's Automation API: bring the environment beside this file up, wait until it can train, take it down.

python deploy.py preview --stack dev
python deploy.py up --stack dev --wait 1800    # writes dev-outputs.json, for `trn train --outputs`
python deploy.py destroy --stack dev

It needs the Pulumi CLI, credentials of AWS, a backend (`pulumi login`, or PULUMI_BACKEND_URL), and, for a stack that
encrypts its secrets by a passphrase, PULUMI_CONFIG_PASSPHRASE.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pulumi import automation

from trainium_eks.model.outputs import StackOutputs

PROJECT = Path(__file__).resolve().parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = argparse.ArgumentParser(description="Bring an environment up from Python.")
    parser.add_argument("command", choices=("preview", "up", "destroy"))
    parser.add_argument("--stack", default="dev", help="reads Pulumi.<stack>.yaml; is made when it is missing")
    parser.add_argument("--wait", type=float, default=1800, metavar="SECONDS", help="for nodes and queues after `up`")
    asked = parser.parse_args(arguments)
    if not (PROJECT / f"Pulumi.{asked.stack}.yaml").is_file():
        parser.error(f"there is no Pulumi.{asked.stack}.yaml in {PROJECT}")
    if shutil.which("pulumi") is None:
        return fail("pulumi is not on PATH: install it, https://www.pulumi.com/docs/install/")
    try:
        return run(asked.command, asked.stack, asked.wait)
    except automation.InvalidVersionError as error:
        return fail(f"the Pulumi CLI is too old: {error}")
    except automation.ConcurrentUpdateError:
        return fail(f"another update of {asked.stack} runs; after one that died: pulumi cancel --stack {asked.stack}")
    except automation.CommandError as error:
        return fail(f"pulumi {asked.command} failed:\n{error}")


def run(command: str, name: str, wait_seconds: float) -> int:
    """Run one command on a stack; return its exit code."""
    stack = automation.create_or_select_stack(name, work_dir=str(PROJECT))
    if command == "preview":
        stack.preview(on_output=print)
        return 0
    if command == "destroy":
        stack.destroy(on_output=print)
        return 0
    values = {key: output.value for key, output in stack.up(on_output=print).outputs.items()}
    outputs = StackOutputs.parse(values)
    file = PROJECT / f"{name}-outputs.json"
    # The kubeconfig in it names the API's address, so the file is the owner's alone.
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as written:
        json.dump(values, written, indent=2)
    sys.stdout.write(f"{outputs.cluster_name}: about ${outputs.hourly_usd:.2f} an hour; outputs in {file}\n")
    return ready(file, wait_seconds)


def ready(outputs: Path, seconds: float) -> int:
    """Wait until nodes, devices, volumes and queues are as the stack has them; return the exit code of `trn doctor`."""
    doctor = ["doctor", "--outputs", str(outputs), "--wait", f"{seconds:g}"]
    return subprocess.run([sys.executable, "-m", "trainium_eks.cli", *doctor], check=False).returncode


def fail(message: str) -> int:
    """Write a message; return the exit code of a failure."""
    sys.stderr.write(f"{message}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
