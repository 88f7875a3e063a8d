"""A small Pulumi project in a directory, for tests of the command."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from typer.testing import Result

Run = Callable[..., Result]

PROGRAM = """\
import pulumi
import pulumi_aws as aws

config = pulumi.Config()


class Store(pulumi.ComponentResource):
    def __init__(self, name):
        super().__init__("trainium-eks:index:Store", name)
        inside = pulumi.ResourceOptions(parent=self)
        self.key = aws.kms.Key(f"{name}-key", description=config.get("purpose"), opts=inside)
        self.register_outputs({})


store = Store("store")
pulumi.export("keyArn", store.key.arn)
"""


@dataclass(frozen=True)
class Project:
    path: Path

    def write(self, name, text):
        (self.path / name).write_text(text)

    def git(self, *arguments):
        author = ("-c", "user.name=t", "-c", "user.email=t@t")
        subprocess.run(["git", "-C", str(self.path), *author, *arguments], check=True, capture_output=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-qm", "x")
