"""State of a cluster read by one list a kind: what is not served, and what may not be read."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from cluster_snapshots import outputs

from trainium_eks.diagnose.cluster_state import ReadError, UnreadError, read, read_version
from trainium_eks.kube.cluster import GROUP_LABEL, minor
from trainium_eks.kube.types import ApiError, NoSuchKindError

NODE = {"metadata": {"name": "n", "labels": {GROUP_LABEL: "g"}}}


def server(version):
    """An API of a cluster with one node, which serves no queues and forbids to list pods."""

    def answer(*_, **__):
        if isinstance(version, Exception):
            raise version
        return version

    def listed(_, kind, namespace, fields):
        assert namespace == "team"
        if kind == "Pod":
            raise ApiError(403, "Forbidden", "forbidden")
        if kind == "Queue":
            raise NoSuchKindError(kind)
        return [NODE]

    return SimpleNamespace(request=answer, list=listed, server="https://127.0.0.1:6443")


def test_state_names_unserved_and_forbidden_kinds():
    kinds = {"Node": "v1", "Queue": "scheduling.volcano.sh/v1beta1", "Pod": "v1"}
    found = read(server({"gitVersion": "v1.35.4-eks-1a2b3c4"}), outputs(), kinds, "team")
    assert (found.unserved, found.of("Queue"), [*found.unread]) == ({"Queue"}, (), ["Pod"])
    assert (found.find("Node", "n"), found.find("Node", "n", "ns")) == (NODE, None)
    assert (found.nodes_of("g"), found.nodes_of("h")) == ((NODE,), ())
    with pytest.raises(UnreadError, match="Pod objects could not be read: forbidden"):
        found.of("Pod")
    assert found.readable("Pod") == ()
    around = found.snapshot_of({"metadata": {"name": "job"}})
    assert (around.pods, around.nodes) == ((), (NODE,))
    assert replace(found, unread={"Queue": "forbidden"}).snapshot_of({"metadata": {"name": "job"}}).queues is None
    assert minor(found.version) == (1, 35)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (ApiError(403, "Forbidden", "no"), "refuses this machine's credentials.*list-access-entries"),
        (ApiError(404, "NotFound", "no"), "gives no version"),
        ({"major": "1"}, "is not a Kubernetes API server"),
    ],
)
def test_server_without_a_version_is_refused(answer, message):
    with pytest.raises(ReadError, match=f"(?s){message}"):
        read_version(server(answer))
