"""Specs of roles, network policies and admission policies of a team's namespace. No resource."""

from collections.abc import Sequence

import pulumi
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


REQUEST_SHARES = 1
"""Share of the API server's seats for one team. Kubernetes' own priority levels have 245 together (its documentation,
"API Priority and Fairness"), so of the default's 600 requests at one time 3 are the team's."""


def request_level() -> k8s.flowcontrol.v1.PriorityLevelConfigurationSpecArgs:
    """Return the spec of a team's priority level: few requests are served at one time, none of them in seats of others,
    and the next ones wait. Long requests (watches, followed logs) take no seat."""
    queuing = k8s.flowcontrol.v1.QueuingConfigurationArgs(queues=16, hand_size=4, queue_length_limit=50)
    return k8s.flowcontrol.v1.PriorityLevelConfigurationSpecArgs(
        type="Limited",
        limited=k8s.flowcontrol.v1.LimitedPriorityLevelConfigurationArgs(
            nominal_concurrency_shares=REQUEST_SHARES,
            borrowing_limit_percent=0,
            lendable_percent=0,
            limit_response=k8s.flowcontrol.v1.LimitResponseArgs(type="Queue", queuing=queuing),
        ),
    )


def request_flow(level: pulumi.Input[str], group: str, namespace: str) -> k8s.flowcontrol.v1.FlowSchemaSpecArgs:
    """Return the spec that puts all requests of a team's researchers and pods into its priority level, with separate
    queues for each person."""
    everything = ["*"]
    accounts = k8s.flowcontrol.v1.ServiceAccountSubjectArgs(namespace=namespace, name="*")
    return k8s.flowcontrol.v1.FlowSchemaSpecArgs(
        priority_level_configuration=k8s.flowcontrol.v1.PriorityLevelConfigurationReferenceArgs(name=level),
        # Before Kubernetes' own for service accounts (9000), after those for single controllers.
        matching_precedence=8000,
        distinguisher_method=k8s.flowcontrol.v1.FlowDistinguisherMethodArgs(type="ByUser"),
        rules=[
            k8s.flowcontrol.v1.PolicyRulesWithSubjectsArgs(
                subjects=[
                    k8s.flowcontrol.v1.SubjectArgs(kind="Group", group=k8s.flowcontrol.v1.GroupSubjectArgs(name=group)),
                    k8s.flowcontrol.v1.SubjectArgs(kind="ServiceAccount", service_account=accounts),
                ],
                resource_rules=[
                    k8s.flowcontrol.v1.ResourcePolicyRuleArgs(
                        verbs=everything,
                        api_groups=everything,
                        resources=everything,
                        cluster_scope=True,
                        namespaces=everything,
                    )
                ],
                non_resource_rules=[
                    k8s.flowcontrol.v1.NonResourcePolicyRuleArgs(verbs=everything, non_resource_urls=everything)
                ],
            )
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
