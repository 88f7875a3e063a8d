"""Which pod of a job is which."""

from typing import Any

import pytest

from trainium_eks.jobs.objects import identity


def _pod(name: str, **labels: str) -> dict[str, Any]:
    spelled = {label.replace("_", "-"): value for label, value in labels.items()}
    return {
        "metadata": {"name": name, "labels": {_LABELS[label]: value for label, value in spelled.items()}},
        "spec": {"hostname": name},
    }


_LABELS = {"replica-id": identity.REPLICA_LABEL, "task-index": identity.TASK_INDEX_LABEL}


@pytest.mark.parametrize(
    ("pod", "rank"),
    [
        # In TorchX's shape each task has one pod, so Volcano's own number is 0 on all of them.
        (_pod("bert-trainer-3-0", replica_id="3", task_index="0"), 3),
        (_pod("bert-trainer-12", task_index="12"), 12),
        (_pod("bert-trainer-3-0"), 3),
        (_pod("bert-trainer-12"), 12),
        ({"metadata": {"name": "bert-trainer-10"}}, 10),
    ],
)
def test_node_rank_of_both_shapes(pod: dict[str, Any], rank: int) -> None:
    assert identity.node_rank(pod) == rank


@pytest.mark.parametrize("name", ["toolbox", "bert-trainer-x", "trainer-1"])
def test_a_pod_of_no_job_has_no_node_rank(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        identity.node_rank(_pod(name))


@pytest.mark.parametrize("shape", ["bert-trainer-{}-0", "bert-trainer-{}"])
def test_ranks_follow_the_host_names_under_torchrun_and_the_node_ranks_without_it(shape: str) -> None:
    pods = [_pod(shape.format(node)) for node in (10, 2, 1, 0, 11)]

    def order(found: list[Any]) -> list[int]:
        return [identity.node_rank(pod) for pod in found]

    assert order(identity.by_process_rank(pods)) == [0, 1, 10, 11, 2]
    assert order(identity.by_process_rank(pods, "gang")) == [0, 1, 2, 10, 11]
    assert order(identity.by_node_rank(pods)) == [0, 1, 2, 10, 11]
