"""What every test may use."""

import os
from collections.abc import Callable

import pytest

from trainium_eks.graph.graph import Graph
from trainium_eks.graph.recorder import record_program

# What a developer's shell may hold and the SDKs read as defaults: no test may depend on it.
_AMBIENT = ("AWS_", "KUBECONFIG", "PULUMI_", "HELM_")


@pytest.fixture(autouse=True)
def _no_ambient_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(_AMBIENT):
            monkeypatch.delenv(name)
    # Rule R05 asks whether a version is still in standard support: the answer must not change while nobody looks.
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795219200")  # 2026-11-21


@pytest.fixture
def record() -> Callable[..., Graph]:
    """Records a program in this process: ``graph = record(lambda: Network("net", {...}))``.

    Takes the keyword arguments of :func:`trainium_eks.graph.recorder.record_program`. Pulumi's state lives in a
    context of the recording's own, so nothing is left for the next test.
    """
    return record_program
