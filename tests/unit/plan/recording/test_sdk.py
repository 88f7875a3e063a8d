"""Parts of Pulumi's SDK that a release may change without an error in trainium_eks/plan/sdk.py."""

import ast
import asyncio
import contextlib
import inspect
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pulumi
import pytest
from pulumi.runtime import settings
from pulumi.runtime.proto import resource_pb2

from trainium_eks.plan import sdk

ROOT = Path(__file__).resolve().parents[4]
WHERE = f"Pulumi's SDK {version('pulumi')} moved what trainium_eks/plan/sdk.py uses: "


def test_recording_sets_every_field_of_pulumis_settings():
    """Each is a context variable: an unset one would keep the value of an earlier program in this process."""
    wanted = {name for name, value in vars(settings.Settings).items() if isinstance(value, property)}
    source = inspect.getsource(sdk.enter)
    missing = [name for name in wanted - {"rpc_manager"} if f"{name}=" not in source]
    assert not missing, f"{WHERE}Settings has {', '.join(sorted(missing))}, which sdk.enter does not set"


def test_output_shows_whether_it_is_known():
    async def ask():
        later = asyncio.get_running_loop().create_future()
        output = pulumi.Output.from_input(later)
        await asyncio.sleep(0)
        before = sdk.is_resolved(output)
        later.set_result("now")
        await output.future()
        return before, sdk.is_resolved(output)

    # Not asyncio.run: it would leave this thread without a loop, which Pulumi's mocks in other tests look for.
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        assert loop.run_until_complete(ask()) == (False, True), f"{WHERE}Output._data"


def test_no_other_module_touches_private_parts():
    """A private part is a name of a pulumi module that starts with an underscore."""
    found = []
    for file in sorted([*(ROOT / "trainium_eks").rglob("*.py"), *(ROOT / "components").glob("*.py")]):
        text = file.read_text()
        if file.name == "sdk.py" or "pulumi" not in text:
            continue
        imported = {"pulumi"}
        for node in ast.walk(ast.parse(text)):
            private = False
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pulumi":
                imported |= {alias.asname or alias.name for alias in node.names}
                private = "._" in f".{node.module}" or any(alias.name.startswith("_") for alias in node.names)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                private = node.attr.startswith("_") and node.value.id in imported
            found += [f"{file.relative_to(ROOT)}:{node.lineno}"] if private else []
    assert found == []


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # as it must be on a loop that never runs
def test_stopped_event_loop_is_not_awaited():
    loop = asyncio.new_event_loop()  # it never runs
    callbacks = sdk.Callbacks(sdk.BaseMonitor(), loop)
    request = resource_pb2.TransformRequest()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(callbacks.run, "token", request)
        while not callbacks._running:
            time.sleep(0.01)
        callbacks.close()
        with pytest.raises(CancelledError):
            waits.result(timeout=20)
    with pytest.raises(CancelledError):
        callbacks.run("token", request)
    loop.close()
