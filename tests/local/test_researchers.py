"""A team's researcher on a real API server."""

from typing import Any

import pytest
from manifests import RBAC, group, role
from waiting import until

from trainium_eks.kube.api import Api, ApiError
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.control_plane import researchers
from trainium_eks.local.paths import Paths

RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]


def bind(api: Api, namespace: str, *subjects: dict[str, str]) -> None:
    for each in role("team", namespace, RULES, *subjects):
        api.create(each)


def may_list(api: Api, namespace: str) -> bool:
    try:
        api.list("v1", "Pod", namespace=namespace)
    except ApiError as error:
        if error.status != 403:
            raise
        return False
    return True


def test_a_researcher_may_what_the_role_of_their_group_may_and_no_more(api: Api, paths: Paths, namespace: str) -> None:
    bind(api, namespace, group("team:researchers"), group("system:masters"))
    researcher = Api.connect(researchers.kubeconfig(paths, namespace))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found: dict[str, Any] = researcher.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    user = found["status"]["userInfo"]
    assert user["username"] == f"researcher@{namespace}"
    assert user["groups"] == ["team:researchers", "system:authenticated"]
    until(lambda: may_list(researcher, namespace), "the role is in force, which takes a moment")
    assert not may_list(researcher, "default")
    assert not may_list(researcher, "")


@pytest.mark.parametrize("subjects", [[], [group("system:masters")], [{"kind": "User", "name": "x", "apiGroup": RBAC}]])
def test_a_namespace_without_a_group_has_no_researcher(
    api: Api, paths: Paths, namespace: str, subjects: list[dict[str, str]]
) -> None:
    bind(api, namespace, *subjects)
    with pytest.raises(
        ClusterError, match=f"'{namespace}' is not a team's namespace: no RoleBinding in it is for a group"
    ):
        researchers.kubeconfig(paths, namespace)
