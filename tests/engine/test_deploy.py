"""What `make up` and `make destroy` run, to its end: `trn deploy` with a real engine behind it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from engine.rig import Rig, called, succeeded, why_not

if missing := why_not():
    pytest.skip(missing, allow_module_level=True)


def test_up_and_destroy_run_to_their_end_without_an_account_that_could_be_asked(
    new_rig: Callable[[], Rig], tmp_path: Path
) -> None:
    aws = tmp_path / "aws"
    aws.write_text("#!/bin/sh\necho aws-cli/2.31.2 Python/3.13\n")
    aws.chmod(0o755)
    rig = new_rig()
    rig.begin("dev")
    code, said = rig.trn("deploy", "up", "--stack", "dev", "--", "--yes", tools=tmp_path)
    assert code == 0, said
    assert "dev: about $" in said
    assert "checks could be made" in said
    assert rig.resources("dev")

    code, said = rig.trn("deploy", "destroy", "--stack", "dev", "--", "--yes", "--no-export", tools=tmp_path)
    assert code == 0, said
    assert rig.resources("dev") == ()
    kept = {called(thing["urn"]): thing for thing in rig.inventory()}
    assert set(kept) == {"Key trn-dev-key-key", "KeyPolicy trn-dev-key-policy"}

    arn = kept["Key trn-dev-key-key"]["outputs"]["arn"]
    rig.configure("dev", lambda config: config.update({"trainium-eks:keptKeyArn": arn}))
    again = succeeded(rig.preview("dev"))
    keys = {step.name: step.state["inputs"] for step in again.steps if step.custom and "aws:kms/" in step.urn}
    assert set(keys) == {"KeyPolicy trn-dev-key-policy", "Alias trn-dev-key-alias"}
    assert keys["Alias trn-dev-key-alias"]["targetKeyId"] == arn.rpartition("/")[2]
