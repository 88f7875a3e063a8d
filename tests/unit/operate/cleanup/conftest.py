"""Every command of a clean-up is one that the AWS CLI takes."""

import aws_commands
import pytest

from trainium_eks.operate.cleanup.left_over import Where


@pytest.fixture(autouse=True)
def _check_aws_commands(monkeypatch):
    make = Where.command

    def made(self, *words):
        line = make(self, *words)
        assert not aws_commands.fault_of(line), line
        return line

    monkeypatch.setattr(Where, "command", made)
