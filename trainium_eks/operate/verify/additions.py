"""Objects that a person added beside a stack's: rights of its researchers, and limits of its teams' namespaces.

Objects with an owner belong to a controller (Volcano makes a NetworkPolicy for a job), and those that EKS and
Kubernetes bring to every cluster are known by their names: ``kubectl get mutatingwebhookconfigurations`` of
hashicorp/consul-k8s#715, aws/amazon-eks-pod-identity-webhook#205; Kubernetes, default roles and role bindings.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from trainium_eks.kube.cluster import Object, labels_of, name_of, namespace_of

_RBAC, _ADMISSION = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"
KINDS: Mapping[str, str] = {
    **dict.fromkeys(("RoleBinding", "ClusterRoleBinding"), _RBAC),
    "NetworkPolicy": "networking.k8s.io/v1",
    **dict.fromkeys(("ResourceQuota", "LimitRange"), "v1"),
    **dict.fromkeys(("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"), _ADMISSION),
    **dict.fromkeys(("ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding"), _ADMISSION),
}
"""Kinds that researchers do not make, with the API version; a server may not serve the last one."""

EXPECTED = "trainium-eks/expected"
"""Annotation of an added object that is to be kept."""

_BROUGHT_ALONG = re.compile(r"^(eks|aws|amazon|system:|pod-identity-webhook$|vpc-resource-)|amazonaws\.com")
_EVERYBODY = ("system:authenticated", "system:unauthenticated", "system:serviceaccounts")
_LONGEST = 160


@dataclass(frozen=True)
class Teams:
    """The namespaces of the teams, with their labels, and the names of their researchers."""

    namespaces: Mapping[str, Mapping[str, str]]
    groups: Collection[str]
    principals: Collection[str]
    """ARNs of IAM roles and users that EKS lets in as researchers."""

    def mentioned(self, subject: Object) -> bool:
        """Return whether a subject of a binding is, or includes, a researcher or a pod of a team."""
        name, kind = str(subject["name"]), subject["kind"]
        if kind == "ServiceAccount":
            return subject.get("namespace") in self.namespaces
        if kind == "Group":
            own = [f"system:serviceaccounts:{namespace}" for namespace in self.namespaces]
            return name in (*_EVERYBODY, *self.groups, *own)
        # EKS names a session of a role arn:aws:sts::1:assumed-role/<role>/<session>.
        return any(name == arn or f"/{arn.rpartition('/')[2]}/" in name for arn in self.principals)


def added(objects: Collection[Object], made: Collection[str], teams: Teams) -> Iterator[tuple[str, str]]:
    """Yield the objects of :data:`KINDS` that bear on a team and that neither the stack (``made``: ``Kind
    namespace/name``) nor a controller made, each with a description."""
    for each in objects:
        kind, namespace, metadata = str(each["kind"]), namespace_of(each), each["metadata"]
        about = f"{kind} {f'{namespace}/' if namespace else ''}{name_of(each)}"
        bootstrap = "kubernetes.io/bootstrapping" in labels_of(each)
        is_known = about in made or bootstrap or metadata.get("ownerReferences")
        if is_known or EXPECTED in (metadata.get("annotations") or {}):
            continue
        if kind.endswith("RoleBinding"):
            subjects = each.get("subjects") or ()
            if namespace in teams.namespaces or any(map(teams.mentioned, subjects)):
                names = ", ".join(f"{one['kind']} {one['name']}" for one in subjects)
                yield about, f"gives {each['roleRef']['kind']} {each['roleRef']['name']} to {names or 'nobody'}"
        elif namespace:
            if namespace in teams.namespaces:
                yield about, _text(each.get("spec") or {})
        elif not _BROUGHT_ALONG.search(name_of(each)):
            rules = [
                one
                for one in each.get("webhooks") or [(each.get("spec") or {}).get("matchResources") or {}]
                if any(_selects(one.get("namespaceSelector") or {}, labels) for labels in teams.namespaces.values())
            ]
            if rules:
                yield about, f"judges or changes what the teams make: {_text(each.get('spec') or rules[0])}"


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector takes an object with these labels."""

    def holds(one: Object) -> bool:
        has, values = labels.get(one["key"]), one.get("values") or ()
        return {"In": has in values, "NotIn": has not in values, "Exists": has is not None}.get(
            one["operator"], has is None
        )

    same = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return same and all(map(holds, selector.get("matchExpressions") or ()))


def _text(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
