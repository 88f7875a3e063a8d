"""What a pod's worker does with events that come while it is busy."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from trainium_eks.local.agent.worker import Worker
from trainium_eks.local.spec.plan import PodDirectory

POD = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2026-11-22T05:33:04Z",
        "deletionTimestamp": "2026-11-22T05:33:05Z",
    },
    "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "local/python"}]},
    "status": {"phase": "Succeeded"},
}


class Around:
    """As much of the agent as ending a pod takes."""

    def __init__(self, root: Path) -> None:
        self.client = self
        self.forgotten: list[str] = []
        self.worker: Worker | None = None
        self._root = root

    def directory(self, uid: str) -> PodDirectory:
        return PodDirectory(self._root / uid)

    async def request(self, method: str, *_: Any) -> dict[str, Any]:
        assert method == "DELETE"
        # The watch tells that the pod is gone before the answer is here.
        assert self.worker is not None
        self.worker.remove()
        return {}

    def forget(self, uid: str) -> None:
        self.forgotten.append(uid)

    def hosts_changed(self) -> None:
        pass


def test_a_pod_that_goes_while_its_deletion_is_sent_is_cleared_up(tmp_path: Path) -> None:
    around = Around(tmp_path)

    async def run() -> None:
        around.worker = Worker(POD, around, None)  # type: ignore[arg-type]
        await asyncio.wait_for(around.worker.run(), 5)

    # Not asyncio.run: it would leave this thread without a loop, which Pulumi's mocks in other tests look for.
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(run())
    assert around.forgotten == ["u"]
