"""Pulumi's mocks as its guide on unit tests has them: every resource exists as its program asks for it."""

from contextlib import contextmanager

import pulumi
from pulumi.runtime import settings


class Mocks(pulumi.runtime.Mocks):
    """Mocks that keep what a program registers."""

    def __init__(self):
        self.made: list[pulumi.runtime.MockResourceArgs] = []

    def new_resource(self, args):
        """Return an id made of the name, and the inputs as outputs."""
        self.made.append(args)
        return f"{args.name}_id", args.inputs

    def call(self, args):  # type: ignore[override]
        """Return nothing: the components look nothing up."""
        raise AssertionError(f"a component looks up {args.token}")

    def of_type(self, type_):
        """Return the inputs of each resource of a type (``aws:ec2/subnet:Subnet``) by its name."""
        return {each.name: each.inputs for each in self.made if each.typ == type_}

    @classmethod
    @contextmanager
    def set(cls, mocks=None):
        """Set new or given mocks until the end of a test. A process with one stack alone needs ``set_mocks`` only."""
        mocks, root = mocks or cls(), settings.ROOT.get()
        settings.ROOT.set(None)
        pulumi.runtime.set_mocks(mocks, preview=False)
        yield mocks
        settings.ROOT.set(root)
