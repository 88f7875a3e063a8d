"""Specs of roles, network policies and admission policies of a team's namespace. No resource."""

from collections.abc import Sequence

import pulumi_kubernetes as k8s

from trainium_eks.model import scraping
from trainium_eks.model.policies.admission import Match, Policy

METADATA_SERVICE = "169.254.169.254/32"
POD_IDENTITY_ADDRESS = "169.254.170.23/32"
"""Where the Pod Identity agent of a node answers its pods, port 80 (EKS user guide, Pod Identity)."""


def role_rules(
    rules: Sequence[tuple[str, tuple[str, ...], tuple[str, ...]]],
) -> list[k8s.rbac.v1.PolicyRuleArgs]:
    """Return the rules of a Role or ClusterRole."""
    return [
        k8s.rbac.v1.PolicyRuleArgs(api_groups=[group], resources=list(resources), verbs=list(verbs))
        for group, resources, verbs in rules
    ]


def network_policies(etcd_namespace: str | None) -> dict[str, k8s.networking.v1.NetworkPolicySpecArgs]:
    """Return name to spec of the network policies: they admit only traffic that a training job needs, with the
    rendezvous in etcd's namespace, if there is one.

    EFA traffic bypasses the kernel's network stack and these policies: on the fabric, security groups and nodes keep
    jobs apart.
    """
    everyone = k8s.meta.v1.LabelSelectorArgs()
    same_namespace = k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=everyone)
    policies = {
        "default-deny": k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=everyone, policy_types=["Ingress", "Egress"]
        ),
        "same-namespace": k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=everyone,
            policy_types=["Ingress", "Egress"],
            ingress=[k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=[same_namespace])],
            egress=[k8s.networking.v1.NetworkPolicyEgressRuleArgs(to=[same_namespace])],
        ),
        "dns": _egress(
            k8s.networking.v1.NetworkPolicyPeerArgs(
                namespace_selector=_named("kube-system"),
                pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels={"k8s-app": "kube-dns"}),
            ),
            ("UDP", 53),
            ("TCP", 53),
        ),
        # S3, image and model registries, and the Kubernetes API, whose addresses no policy can know.
        "https": _egress(
            k8s.networking.v1.NetworkPolicyPeerArgs(
                ip_block=k8s.networking.v1.IPBlockArgs(cidr="0.0.0.0/0", except_=[METADATA_SERVICE])
            ),
            ("TCP", 443),
        ),
        "pod-identity": _egress(
            k8s.networking.v1.NetworkPolicyPeerArgs(ip_block=k8s.networking.v1.IPBlockArgs(cidr=POD_IDENTITY_ADDRESS)),
            ("TCP", 80),
        ),
        # A training's own metrics, for the monitoring namespace alone.
        "metrics": k8s.networking.v1.NetworkPolicySpecArgs(
            pod_selector=k8s.meta.v1.LabelSelectorArgs(match_labels={scraping.LABEL: "true"}),
            policy_types=["Ingress"],
            ingress=[
                k8s.networking.v1.NetworkPolicyIngressRuleArgs(
                    from_=[k8s.networking.v1.NetworkPolicyPeerArgs(namespace_selector=_named(scraping.NAMESPACE))],
                    ports=[k8s.networking.v1.NetworkPolicyPortArgs(protocol="TCP", port=scraping.PORT)],
                )
            ],
        ),
    }
    if etcd_namespace is not None:
        policies["rendezvous"] = _egress(
            k8s.networking.v1.NetworkPolicyPeerArgs(namespace_selector=_named(etcd_namespace)), ("TCP", 2379)
        )
    return policies


def admission_policy(policy: Policy) -> k8s.admissionregistration.v1.ValidatingAdmissionPolicySpecArgs:
    """Return the spec of an admission policy; an object that it cannot evaluate is refused."""
    conditions = [k8s.admissionregistration.v1.MatchConditionArgs(name="judged", expression=policy.condition)]
    return k8s.admissionregistration.v1.ValidatingAdmissionPolicySpecArgs(
        failure_policy="Fail",
        match_constraints=k8s.admissionregistration.v1.MatchResourcesArgs(
            match_policy="Equivalent", resource_rules=[_matching(each, policy.operations) for each in policy.matches]
        ),
        match_conditions=conditions if policy.condition else None,
        variables=[
            k8s.admissionregistration.v1.VariableArgs(name=each.name, expression=each.expression)
            for each in policy.variables
        ],
        validations=[
            k8s.admissionregistration.v1.ValidationArgs(
                expression=each.expression,
                message=each.message,
                message_expression=each.details or None,
                reason="Forbidden",
            )
            for each in policy.validations
        ],
    )


def _named(namespace: str) -> k8s.meta.v1.LabelSelectorArgs:
    return k8s.meta.v1.LabelSelectorArgs(match_labels={"kubernetes.io/metadata.name": namespace})


def _egress(
    peer: k8s.networking.v1.NetworkPolicyPeerArgs, *ports: tuple[str, int]
) -> k8s.networking.v1.NetworkPolicySpecArgs:
    return k8s.networking.v1.NetworkPolicySpecArgs(
        pod_selector=k8s.meta.v1.LabelSelectorArgs(),
        policy_types=["Egress"],
        egress=[
            k8s.networking.v1.NetworkPolicyEgressRuleArgs(
                to=[peer],
                ports=[
                    k8s.networking.v1.NetworkPolicyPortArgs(protocol=protocol, port=port) for protocol, port in ports
                ],
            )
        ],
    )


def _matching(match: Match, operations: Sequence[str]) -> k8s.admissionregistration.v1.NamedRuleWithOperationsArgs:
    return k8s.admissionregistration.v1.NamedRuleWithOperationsArgs(
        api_groups=[match.group],
        api_versions=[match.version],
        resources=[match.resource],
        operations=list(operations),
        scope="Namespaced",
    )
