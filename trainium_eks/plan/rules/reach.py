"""R73-R77: rights and placements that lead to further rights."""

import re
from collections.abc import Iterator, Mapping

from trainium_eks.model.finding import Finding
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.reading import (
    Json,
    actions,
    allows,
    at,
    items,
    listed,
    mapping,
    matches,
    principals,
    show,
    statements,
    text,
    true,
)
from trainium_eks.plan.resource_types.rows.helm import chart_name
from trainium_eks.plan.rules._images import CACHE_RULE
from trainium_eks.plan.rules._objects import (
    NAMESPACE,
    PodMaker,
    is_tenant,
    namespace,
    object_name,
    pod_makers,
)
from trainium_eks.plan.rules._rule import judged, rule
from trainium_eks.plan.rules.hygiene import AWS_PROVIDER
from trainium_eks.plan.rules.kubernetes import ENFORCE, NETWORK_POLICY, RBAC_ROLES
from trainium_eks.plan.subjects import RELEASE, ROLE

BROAD_POLICIES = re.compile(r"/(AdministratorAccess|PowerUserAccess|SystemAdministrator|\w*FullAccess)$")
"""AWS' own policies that grant a whole service or more."""

LEADING_ACTIONS = (
    "iam:PassRole",
    "iam:AttachRolePolicy",
    "iam:PutRolePolicy",
    "iam:CreateAccessKey",
    "iam:CreatePolicyVersion",
    "iam:UpdateAssumeRolePolicy",
    "sts:AssumeRole",
    "secretsmanager:GetSecretValue",
    "ssm:GetParameter",
    "kms:Decrypt",
)
"""Actions that lead to another identity's rights or secrets, so they name their resources."""


@rule("R73", "Grant no AWS right that leads to others", "high", "CKV_AWS_107-111, CKV_AWS_286-290, CIS 5.1.2")
def aws_rights(graph: Graph) -> Iterator[Finding]:
    """No broad policy of AWS' own is attached; no statement allows all actions of a service, or all but some; and a
    right that leads to other roles, keys or secrets names its resources or has a condition. A role is assumed by
    services and by the environment's own accounts."""
    for attachment in graph.of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment"):
        broad = BROAD_POLICIES.search(text(attachment.inputs.get("policyArn")))
        faults = [f"policyArn is {broad[1]}, wanted a policy for what is needed"] if broad else []
        yield from judged(attachment, faults, "not a broad policy")
    for policy in graph.of_type("aws:iam/rolePolicy:RolePolicy", "aws:iam/policy:Policy"):
        found = statements(policy.inputs.get("policy")) or ()
        faults = [f"policy.Statement[{index}] {fault}" for index, each in enumerate(found) for fault in _leading(each)]
        yield from judged(policy, faults, "leads to nothing else")
    accounts = _accounts(graph)
    for role in graph.of_type(ROLE):
        trusted = statements(role.inputs.get("assumeRolePolicy")) or ()
        faults = [
            f"assumeRolePolicy trusts {who}, wanted services or this environment's account"
            for each in trusted
            if allows(each)
            for kind, who in principals(each)
            if kind != "Service" and not _own(who, accounts)
        ]
        yield from judged(role, faults, "trusts services and its own account")


def _leading(statement: Mapping[str, Json]) -> Iterator[str]:
    if not allows(statement):
        return
    if statement.get("NotAction") is not None:
        yield "allows all but NotAction, wanted named actions"
    everywhere = "*" in listed(statement.get("Resource")) and not statement.get("Condition")
    for action in sorted(actions(statement)):
        if re.fullmatch(r"[a-zA-Z0-9-]+:\*", action):
            yield f"allows {action}, wanted named actions"
        elif everywhere and any(matches(action, leading) for leading in LEADING_ACTIONS):
            yield f"allows {action} on every resource, wanted named ones or a Condition"


def _accounts(graph: Graph) -> frozenset[str]:
    shown = " ".join(str(each.inputs.get("allowedAccountIds")) for each in graph.of_type(AWS_PROVIDER))
    return frozenset(re.findall(r"\d{12}", shown))


def _own(who: str, accounts: frozenset[str]) -> bool:
    account = re.search(r"(?<!\d)\d{12}(?!\d)", who)
    # 000000000000 is the account of simulated answers.
    return account is not None and account[0] in {*accounts, "000000000000"}


LEADING_VERBS = frozenset({"impersonate", "bind", "escalate"})
LEADING_RESOURCES: Mapping[str, frozenset[str]] = {
    "serviceaccounts/token": frozenset({"create"}),
    "persistentvolumes": frozenset({"create"}),
    "nodes/proxy": frozenset({"get", "create", "update", "patch", "delete"}),
    "certificatesigningrequests/approval": frozenset({"update", "patch"}),
    "validatingwebhookconfigurations": frozenset({"create", "update", "patch", "delete"}),
    "mutatingwebhookconfigurations": frozenset({"create", "update", "patch", "delete"}),
}
"""Resources that give another identity, or a way round the API server's checks, with the verbs that do so."""


@rule(
    "R74",
    "Grant no Kubernetes right that leads to others",
    "high",
    "CIS 4.1.2, CIS 4.1.8-4.1.12, Kubernetes RBAC good practices",
)
def kubernetes_rights(graph: Graph) -> Iterator[Finding]:
    """No role impersonates, binds or escalates, makes tokens or volumes (a volume may be any directory of a node),
    proxies to kubelets, or changes admission webhooks; no cluster-wide role reads secrets."""
    for role in graph.of_type(*RBAC_ROLES):
        faults = [
            f"rules[{index}] {fault}"
            for index, each in enumerate(items(role.inputs.get("rules")))
            for fault in _leads(each, cluster_wide=role.type == RBAC_ROLES[0])
        ]
        yield from judged(role, faults, "leads to no other identity")


def _leads(granted: Json, *, cluster_wide: bool) -> Iterator[str]:
    verbs = {text(each) for each in items(at(granted, "verbs"))}
    for verb in sorted(verbs & LEADING_VERBS):
        yield f"allows {verb}, wanted no such verb"
    for resource in map(text, items(at(granted, "resources"))):
        if verbs & LEADING_RESOURCES.get(resource, frozenset()):
            yield f"allows {', '.join(sorted(verbs))} on {resource}, wanted no such right"
        if cluster_wide and resource == "secrets" and verbs & {"get", "list", "watch"}:
            yield "reads secrets of the whole cluster, wanted a Role in one namespace"


@rule("R75", "Keep images as they were pushed", "medium", "CKV_AWS_51, CKV_AWS_136, CKV_AWS_163, AWS-0030, CIS 5.1.1")
def repositories(graph: Graph) -> Iterator[Finding]:
    """A repository's tags do not move, images are scanned when they are pushed and encrypted with a customer key, and
    they do not go with the repository, unless they are a cache's copies."""
    caches = tuple(f"{text(each.inputs.get('ecrRepositoryPrefix'))}/" for each in graph.of_type(CACHE_RULE))
    for repository in graph.of_type("aws:ecr/repository:Repository"):
        inputs = repository.inputs
        faults = []
        if at(inputs, "imageTagMutability") != "IMMUTABLE":
            faults.append(f'imageTagMutability is {show(at(inputs, "imageTagMutability"))}, wanted "IMMUTABLE"')
        if not true(at(inputs, "imageScanningConfiguration.scanOnPush")):
            faults.append("imageScanningConfiguration.scanOnPush is off, wanted it on")
        if at(inputs, "encryptionConfigurations[0].encryptionType") != "KMS":
            faults.append("encryptionConfigurations has no KMS, wanted a customer key")
        if true(inputs.get("forceDelete")) and not text(inputs.get("name")).startswith(caches):
            faults.append("forceDelete is true, wanted false")
        yield from judged(repository, faults, "images stay as they were pushed")


@rule("R76", "Keep pods off their host", "high", "CKV_K8S_17-19, CKV_K8S_20, CKV_K8S_27, CIS 4.2.2-4.2.5, CIS 4.3.2")
def pods_apart(graph: Graph) -> Iterator[Finding]:
    """Outside namespaces that are privileged for a reason, no pod of the program itself sees its host's network, files
    or processes, or may gain privileges. A namespace that is privileged is no team's and holds a chart or a pod that
    needs it. Where the program itself runs pods, a policy denies traffic, and no policy lets in every address."""
    homes = {object_name(each): each for each in graph.of_type(NAMESPACE)}
    levels = {name: mapping(at(each.inputs, "metadata.labels")).get(ENFORCE) for name, each in homes.items()}
    privileged = {name for name, level in levels.items() if level == "privileged"} | {"kube-system"}
    makers = tuple(pod_makers(graph))
    for maker in makers:
        faults = [] if namespace(maker.resource) in privileged else list(_host_faults(maker))
        home = namespace(maker.resource)
        if home in homes and not is_tenant(graph, homes[home]) and not _denies(graph, home):
            faults.append(f"no NetworkPolicy denies traffic in {home}, wanted one that selects every pod")
        yield from judged(maker.resource, faults, "apart from its host")
    charts = {namespace(each) for each in graph.of_type(RELEASE) if chart_name(each) not in MODEST_CHARTS}
    needy = {namespace(each.resource) for each in makers if any(_host_faults(each))}
    for name, each in homes.items():
        if name in privileged:
            why = "it is a team's" if is_tenant(graph, each) else "no chart or pod in it needs that"
            needed = name in charts | needy and not is_tenant(graph, each)
            faults = [] if needed else [f"pod-security enforce is privileged, but {why}: wanted baseline"]
            yield from judged(each, faults, "privileged for what runs there")
    for policy in graph.of_type(NETWORK_POLICY):
        faults = [
            f"spec.ingress[{index}] lets in everybody, wanted a from"
            for index, each in enumerate(items(at(policy.inputs, "spec.ingress")))
            if not at(each, "from") and not items(at(each, "ports"))
        ]
        yield from judged(policy, faults, "lets in named peers or ports")


MODEST_CHARTS = frozenset({"volcano", "torchx-etcd"})
"""Charts with pods that keep to the baseline level of Pod Security; the pods of other charts are unknown."""


def _denies(graph: Graph, home: str) -> bool:
    return any(
        namespace(each) == home
        and at(each.inputs, "spec.podSelector") in ({}, None)
        and "Ingress" in items(at(each.inputs, "spec.policyTypes"))
        for each in graph.of_type(NETWORK_POLICY)
    )


def _host_faults(maker: PodMaker) -> Iterator[str]:
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if true(at(maker.spec, key)):
            yield f"{maker.path}.{key} is true, wanted false"
    for index, volume in enumerate(items(at(maker.spec, "volumes"))):
        if at(volume, "hostPath") is not None:
            found = show(at(volume, "hostPath.path"))
            yield f"{maker.path}.volumes[{index}].hostPath is {found}, wanted no host's files"
    for path, container in maker.containers:
        if true(at(container, "securityContext.allowPrivilegeEscalation")):
            yield f"{path}.securityContext.allowPrivilegeEscalation is true, wanted false"


@rule("R77", "Name who has access to the cluster", "high", "CIS 4.1.1, CIS 4.1.7, CIS 5.5.1")
def access(graph: Graph) -> Iterator[Finding]:
    """Access entries are the only way in (no aws-auth ConfigMap), each names one principal, and none is in a group of
    Kubernetes' own, such as system:masters."""
    for plane in graph.control_planes:
        path, mode = plane.read("accessConfig.authenticationMode", "authenticationMode")
        faults = [] if mode == "API" else [f'{path} is {show(mode)}, wanted "API"']
        yield from judged(plane.resource, faults, "access entries only")
    for entry in graph.of_type("aws:eks/accessEntry:AccessEntry"):
        groups = [text(each) for each in items(entry.inputs.get("kubernetesGroups"))]
        faults = [
            f"kubernetesGroups has {each}, wanted groups of your own" for each in groups if each.startswith("system:")
        ]
        if "*" in text(entry.inputs.get("principalArn")):
            faults.append(f"principalArn is {show(entry.inputs.get('principalArn'))}, wanted one principal")
        yield from judged(entry, faults, "one named principal")
