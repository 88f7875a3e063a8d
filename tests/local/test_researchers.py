"""A team's researcher on a real API server."""

from collections.abc import Mapping
from typing import Any

import pytest
from waiting import until

from trainium_eks.kube.api import Api, ApiError
from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.control_plane import researchers
from trainium_eks.local.paths import Paths

RBAC = "rbac.authorization.k8s.io"


def bind(api: Api, namespace: str, subjects: list[Mapping[str, str]]) -> None:
    metadata = {"name": "team", "namespace": namespace}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    role = {"apiGroup": RBAC, "kind": "Role", "name": "team"}
    version = f"{RBAC}/v1"
    api.create({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules})
    api.create(
        {"apiVersion": version, "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": subjects}
    )


def group(name: str) -> dict[str, str]:
    return {"apiGroup": RBAC, "kind": "Group", "name": name}


def whoami(api: Api) -> Mapping[str, Any]:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found: Mapping[str, Any] = api.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    user: Mapping[str, Any] = found["status"]["userInfo"]
    return user


def may_list(api: Api, namespace: str) -> bool:
    try:
        api.list("v1", "Pod", namespace=namespace)
    except ApiError as error:
        if error.status != 403:
            raise
        return False
    return True


def test_a_researcher_may_what_the_role_of_their_group_may_and_no_more(api: Api, paths: Paths, namespace: str) -> None:
    bind(api, namespace, [group("team:researchers"), group("system:masters")])
    researcher = Api.connect(researchers.kubeconfig(paths, namespace))
    user = whoami(researcher)
    assert user["username"] == f"researcher@{namespace}"
    assert user["groups"] == ["team:researchers", "system:authenticated"]
    until(lambda: may_list(researcher, namespace), "the role is in force, which takes a moment")
    assert researcher.list("v1", "Pod", namespace=namespace) == []
    for forbidden in ("default", ""):
        with pytest.raises(ApiError, match="cannot list resource"):
            researcher.list("v1", "Pod", namespace=forbidden)


@pytest.mark.parametrize("subjects", [[], [group("system:masters")], [{"kind": "User", "name": "x", "apiGroup": RBAC}]])
def test_a_namespace_without_a_group_has_no_researcher(
    api: Api, paths: Paths, namespace: str, subjects: list[Mapping[str, str]]
) -> None:
    bind(api, namespace, subjects)
    with pytest.raises(
        ClusterError, match=f"'{namespace}' is not a team's namespace: no RoleBinding in it is for a group"
    ):
        researchers.kubeconfig(paths, namespace)
