"""R12-R19, R21-R23, R30 and R94: launch templates, images, rights, updates and the gate of nodes."""

import re
from collections.abc import Callable, Iterator, Mapping

from trainium_eks.model.catalogue.instances import EKS_EFFECTS, FABRIC_UNTESTED
from trainium_eks.model.config.namespaces import FABRIC_GATE
from trainium_eks.model.finding import Finding
from trainium_eks.model.node_labels import POOL_LABEL
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.reading import (
    Json,
    actions,
    allows,
    at,
    differs,
    document,
    given,
    items,
    mapping,
    show,
    statements,
    text,
    true,
    user_data,
)
from trainium_eks.plan.rules._autoscaled import node_pools, served_groups
from trainium_eks.plan.rules._objects import object_name
from trainium_eks.plan.rules._rule import broken, judged, rule
from trainium_eks.plan.subjects import DEPLOYMENT, LAUNCH_TEMPLATE, ROLE, SUBNET, NodeGroup

WORKER_POLICIES = frozenset({"AmazonEKSWorkerNodePolicy"})
PULL_POLICIES = frozenset({"AmazonEC2ContainerRegistryReadOnly", "AmazonEC2ContainerRegistryPullOnly"})
OPTIONAL_POLICIES = frozenset({"AmazonSSMManagedInstanceCore"})
CNI_POLICY = "AmazonEKS_CNI_Policy"
MONITORING_AGENT = "eks-node-monitoring-agent"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"

SECRETS = (
    ("an AWS access key id", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    ("an AWS secret access key", re.compile(r"aws_secret_access_key\s*[=:]\s*\S", re.IGNORECASE)),
    ("a GitHub token", re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36}")),
    ("a Hugging Face token", re.compile(r"\bhf_[A-Za-z0-9]{30,}")),
    ("a password or token", re.compile(r"(?i)\b[A-Z_]*(?:password|passwd|secret|token)\s*=\s*['\"]?[^\s'\"$]{8,}")),
)


@rule("R12", "Require IMDSv2 on nodes", "high", "CKV_AWS_79, AWS-0028, AWS-0130")
def imds_v2(graph: Graph) -> Iterator[Finding]:
    """Version 1 of the metadata service gives the node's credentials to every caller that can make it send one GET."""
    yield from _of_templates(
        graph, lambda inputs: differs(inputs, "metadataOptions.httpTokens", "required"), "required"
    )


@rule("R13", "Limit metadata to one hop", "high", "CKV_AWS_341, EKS best practices IAM")
def hop_limit(graph: Graph) -> Iterator[Finding]:
    """With one hop, pods off the host network cannot take the node's role; charts get region and cluster as values
    instead."""
    path = "metadataOptions.httpPutResponseHopLimit"
    yield from _of_templates(graph, lambda inputs: differs(inputs, path, 1), "one hop")


@rule("R14", "Leave no SSH path to nodes", "medium", "CKV_AWS_100, CIS 3")
def no_ssh(graph: Graph) -> Iterator[Finding]:
    """Nodes are reached through Session Manager: no key pair, no remoteAccess, no rule for port 22 alone."""
    for group in graph.node_groups:
        faults = ["remoteAccess is set, wanted unset"] if given(group.resource.inputs.get("remoteAccess")) else []
        if given(group.settings.get("keyName")):
            name = group.template.name if group.template is not None else ""
            faults.append(f"launch template {name}: keyName is {show(group.settings['keyName'])}, wanted unset")
        yield from judged(group.resource, faults, "no key pair and no remote access")
    for each in graph.security_rules:
        if each.inbound and each.first_port == 22 == each.last_port:
            yield broken(each.resource.urn, f"{each.path or 'fromPort'}: port 22 is let in, wanted no SSH rule")


@rule("R15", "Give nodes no public address", "high", "CKV_AWS_88, CKV_AWS_130, AWS-0164, CIS 5.4.3")
def no_public_addresses(graph: Graph) -> Iterator[Finding]:
    """Neither a launch template nor a subnet with nodes assigns public addresses; nodes reach out through NAT or
    endpoints. A public subnet without nodes may, for load balancers and bastions."""
    for template in graph.of_type(LAUNCH_TEMPLATE):
        faults = [
            f"networkInterfaces[{index}].associatePublicIpAddress is true, wanted false or unset"
            for index, each in enumerate(items(template.inputs.get("networkInterfaces")))
            if true(at(each, "associatePublicIpAddress"))
        ]
        yield from judged(template, faults, "no interface asks for a public address")
    of_nodes = {each.urn for group in graph.node_groups for each in graph.refers(group.resource, "subnetIds", SUBNET)}
    for subnet in graph.of_type(SUBNET):
        on = true(subnet.inputs.get("mapPublicIpOnLaunch")) and (subnet.urn in of_nodes or not graph.public(subnet))
        faults = ["mapPublicIpOnLaunch is true, wanted false or unset"] if on else []
        yield from judged(subnet, faults, "gives nodes no public address")


@rule("R16", "Encrypt node volumes, as gp3", "high", "CKV_AWS_8, CKV_AWS_189, AWS-0008, AWS-0026")
def node_volumes(graph: Graph) -> Iterator[Finding]:
    """Every volume of a launch template is encrypted and gp3; in production with a customer key. EBS storage classes
    are encrypted too."""
    yield from _of_templates(graph, lambda inputs: _volume_faults(graph, inputs), "encrypted gp3")
    for storage in graph.of_type("kubernetes:storage.k8s.io/v1:StorageClass"):
        if storage.inputs.get("provisioner") == "ebs.csi.aws.com":
            yield from judged(storage, differs(storage.inputs, "parameters.encrypted", True), "volumes are encrypted")


@rule("R17", "Put no secret into user data", "high", "CKV_AWS_46, AWS-0029, AWS-0129")
def user_data_secrets(graph: Graph) -> Iterator[Finding]:
    """Every process of a node can read its user data, and so can every identity that may describe the template."""
    for template in graph.of_type(LAUNCH_TEMPLATE):
        yield from judged(template, _secret_faults(template.inputs.get("userData")), "no secret in its user data")


@rule(
    "R18",
    "Give node roles the worker and pull policies only, and allow no role every action",
    "high",
    "CKV_AWS_274, CKV_AWS_275, CKV_AWS_62, CKV_AWS_63, CKV_AWS_286-290, CKV2_AWS_40, CKV2_AWS_56, AWS-0057, CIS 5.1.3",
    reads_computed=True,
)
def node_roles(graph: Graph) -> Iterator[Finding]:
    """A node's role is every pod's role on the host network: worker policy, image pull and Session Manager. The
    VPC CNI gets its policy by Pod Identity instead. No policy of the program allows every action."""
    roles_of = {each.resource.urn: graph.refers(each.resource, "nodeRoleArn", ROLE) for each in graph.node_groups}
    for role in {role.urn: role for roles in roles_of.values() for role in roles}.values():
        yield from judged(role, _node_role_faults(graph, role), "worker and pull policies only")
    for urn in (urn for urn, roles in roles_of.items() if not roles):
        found = show(graph.by_urn[urn].inputs.get("nodeRoleArn"))
        yield broken(urn, f"nodeRoleArn {found} is not a role of this program: its policies are unseen")
    for addon in graph.addons("vpc-cni"):
        good = any(CNI_POLICY in _policies(graph, role) for role in _pod_roles(graph, addon))
        faults = [] if good else [f"podIdentityAssociations has no role with {CNI_POLICY}, wanted one"]
        yield from judged(addon, faults, f"has {CNI_POLICY} by Pod Identity")
    for policy in graph.of_type("aws:iam/rolePolicy:RolePolicy", "aws:iam/policy:Policy"):
        granted = statements(policy.inputs.get("policy"))
        if granted is None:
            faults = [f"policy is {show(policy.inputs.get('policy'))}, wanted a readable document"]
        else:
            wide = [index for index, each in enumerate(granted) if allows(each) and "*" in actions(each)]
            faults = [f'policy.Statement[{index}].Action is "*", wanted named actions' for index in wide]
        yield from judged(policy, faults, "names its actions")


@rule("R19", "Repair broken nodes automatically", "medium", "EKS best practices data plane, containers-roadmap#2567")
def node_repair(graph: Graph) -> Iterator[Finding]:
    """Node repair is off by default, and learns of Neuron and GPU faults only from the monitoring agent. The agent's
    GPU part (the DCGM server) tolerates no taint by default, and on a GPU node without it the agent reports the GPUs as
    broken."""
    for group in graph.node_groups:
        yield from judged(
            group.resource, differs(group.resource.inputs, "nodeRepairConfig.enabled", True), "repair is on"
        )
    agents = graph.addons(MONITORING_AGENT)
    for plane in graph.control_planes:
        faults = [] if agents else [f"add-on {MONITORING_AGENT} is missing, wanted it installed"]
        yield from judged(plane.resource, faults, "the monitoring agent is installed")
    for agent in agents:
        yield from judged(agent, _dcgm_faults(graph, agent), "its DCGM server tolerates the GPU nodes' taints")


@rule("R21", "Leave the size of autoscaled groups alone", "medium", "terraform-aws-eks FAQ, pulumi-eks#1380")
def autoscaled_sizes(graph: Graph) -> Iterator[Finding]:
    """Where an autoscaler or a person sets the size, an `up` must not set it back. This means groups with
    `ignoreDesiredSize` in the config, groups tagged for Cluster Autoscaler, and groups with the tags that it looks for:
    every group, when it looks for the tags that EKS sets."""
    scaled = {group.resource.urn for group in served_groups(graph)}
    elsewhere = [
        text(at(each, "name")) for each in items(graph.config.get("nodeGroups")) if true(at(each, "ignoreDesiredSize"))
    ]
    for group in graph.node_groups:
        tagged = any("k8s.io/cluster-autoscaler/enabled" in key for key in mapping(group.resource.inputs.get("tags")))
        named = any(name and _belongs(graph, group.resource, name) for name in elsewhere)
        if tagged or named or group.resource.urn in scaled:
            ignored = {"scalingConfig", "scalingConfig.desiredSize"}.intersection(group.resource.options.ignore_changes)
            shown = list(group.resource.options.ignore_changes)
            faults = [] if ignored else [f"options.ignoreChanges is {shown}, wanted scalingConfig.desiredSize"]
            yield from judged(group.resource, faults, "its desired size is left alone")


@rule("R22", "Taint and label accelerator nodes", "high", "terraform-aws-eks Neuron pattern, TorchX 0.7")
def taints(graph: Graph) -> Iterator[Finding]:
    """Without the taint, any pod takes an accelerator node. The taint's key is the resource's name, for which
    Kubernetes adds the toleration by itself (TorchX 0.7 adds none)."""
    for group in graph.accelerator_groups:
        yield from judged(group.resource, _taint_faults(graph, group), "tainted and labelled as the catalogue says")


@rule("R23", "Use the AMI family that fits the type", "high", "EKS AMITypes")
def ami_types(graph: Graph) -> Iterator[Finding]:
    """The Neuron AMI on Trainium and Inferentia, the NVIDIA AMI on GPUs, the standard one elsewhere; never AL2, which
    ends at Kubernetes 1.32. Bottlerocket's plain variant carries the Neuron driver."""
    for group in graph.node_groups:
        yield from judged(
            group.resource, _ami_faults(group), f"{group.resource.inputs.get('amiType')} fits {group.type_name}"
        )


@rule("R30", "Pin the launch template's version, leave the group's name to Pulumi", "medium", "NodeGroup ForceNew list")
def pinned_template(graph: Graph) -> Iterator[Finding]:
    """$Latest rolls nodes outside any plan. A fixed group name collides when a change replaces the group, because
    the new one is made first."""
    for group in graph.node_groups:
        version = at(group.resource.inputs, "launchTemplate.version")
        moving = not given(version) or text(version).startswith("$")
        faults = [f"launchTemplate.version is {show(version)}, wanted a version number"] if moving else []
        name = group.resource.inputs.get("nodeGroupName")
        if given(name):
            faults.append(f"nodeGroupName is {show(name)}, wanted unset (nodeGroupNamePrefix is fine)")
        yield from judged(group.resource, faults, "version pinned, name left to Pulumi")


def _of_templates(graph: Graph, faults_of: Callable[[Json], Iterator[str]], good: str) -> Iterator[Finding]:
    """Yield findings for each launch template; a node group without one takes EKS' own, which fits no rule here."""
    for template in graph.of_type(LAUNCH_TEMPLATE):
        yield from judged(template, faults_of(template.inputs), good)
    for group in graph.node_groups:
        if group.template is None:
            yield broken(group.resource.urn, "launchTemplate is not of this program, wanted one of this program")


def _volume_faults(graph: Graph, inputs: Json) -> Iterator[str]:
    mapped = items(at(inputs, "blockDeviceMappings"))
    if not mapped:
        yield "blockDeviceMappings is unset, wanted an encrypted gp3 root volume"
    for index, each in enumerate(mapped):
        if at(each, "ebs") is None:
            continue
        for fault in (*differs(each, "ebs.encrypted", True), *differs(each, "ebs.volumeType", "gp3")):
            yield f"blockDeviceMappings[{index}].{fault}"
        if graph.production and not given(at(each, "ebs.kmsKeyId")):
            yield f"blockDeviceMappings[{index}].ebs.kmsKeyId is unset, wanted a KMS key in production"


def _secret_faults(value: Json) -> Iterator[str]:
    if value is None:
        return
    parts = user_data(value)
    if parts is None:
        yield f"userData is {show(value)}, wanted text without secrets"
        return
    for index, part in enumerate(parts):
        for what, pattern in SECRETS:
            if pattern.search(part):
                yield f"userData part {index} looks like it holds {what}, wanted none"


def _policies(graph: Graph, role: Resource) -> frozenset[str]:
    """Return the names of a role's managed policies, from attachments and from the role itself."""
    arns = [each.inputs.get("policyArn") for each in graph.referring(role, "role", ATTACHMENT)]
    arns += items(role.inputs.get("managedPolicyArns"))
    return frozenset(text(arn).rpartition("/")[2] or show(arn) for arn in arns)


def _node_role_faults(graph: Graph, role: Resource) -> Iterator[str]:
    found = _policies(graph, role)
    shown = ", ".join(sorted(found)) or "none"
    if not found >= WORKER_POLICIES or not found & PULL_POLICIES:
        yield f"policies are {shown}, wanted AmazonEKSWorkerNodePolicy and AmazonEC2ContainerRegistryPullOnly"
    extra = found - WORKER_POLICIES - PULL_POLICIES - OPTIONAL_POLICIES
    if extra:
        yield f"policies have {', '.join(sorted(extra))}, wanted worker, pull and Session Manager policies only"
    own = [each.name for each in graph.referring(role, "role", "aws:iam/rolePolicy:RolePolicy")]
    if own or given(role.inputs.get("inlinePolicies")):
        yield f"inline policies {', '.join(own) or 'in inlinePolicies'}, wanted none on a node's role"


def _dcgm_faults(graph: Graph, agent: Resource) -> Iterator[str]:
    """Yield a fault for each taint of a GPU group that the agent's DCGM server does not tolerate, once each."""
    values = document(agent.inputs.get("configurationValues"))
    tolerated = [mapping(each) for each in items(at(values, "dcgmAgent.tolerations"))]
    gpus = [group for group in graph.node_groups if group.instance is not None and group.instance.family == "nvidia"]
    taints = [mapping(each) for group in gpus for each in items(group.resource.inputs.get("taints"))]
    unmet = [each for each in taints if not any(_tolerates(toleration, each) for toleration in tolerated)]
    for taint in dict.fromkeys(f"{each.get('key')}:{each.get('effect')}" for each in unmet):
        yield f"configurationValues has no dcgmAgent.tolerations for {taint}, wanted one"


def _tolerates(toleration: Mapping[str, Json], taint: Mapping[str, Json]) -> bool:
    """Return whether a pod's toleration, in Kubernetes' spelling, covers a node group's taint, in EKS' spelling."""
    key, effect = toleration.get("key"), toleration.get("effect")
    if given(effect) and EKS_EFFECTS.get(text(effect)) != taint.get("effect"):
        return False
    if toleration.get("operator") == "Exists":
        return not given(key) or key == taint.get("key")
    return key == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")


def _pod_roles(graph: Graph, addon: Resource) -> Iterator[Resource]:
    """Yield the roles that an add-on's pods get by Pod Identity, in the add-on or by a separate association of
    ``aws-node``."""
    for index, _ in enumerate(items(addon.inputs.get("podIdentityAssociations"))):
        yield from graph.refers(addon, f"podIdentityAssociations[{index}].roleArn", ROLE)
    for each in graph.of_type(ASSOCIATION):
        if (each.inputs.get("namespace"), each.inputs.get("serviceAccount")) == ("kube-system", "aws-node"):
            yield from graph.refers(each, "roleArn", ROLE)


def _belongs(graph: Graph, resource: Resource, name: str) -> bool:
    """Return whether a node group is the config's group of this name, by its label, else by its or a parent's name."""
    pool = mapping(resource.inputs.get("labels")).get(POOL_LABEL)
    if pool is not None:
        return bool(pool == name)
    names = (resource.name, *(above.name for above in graph.ancestors(resource)))
    return any(each == name or each.endswith(f"-{name}") for each in names)


def _taint_faults(graph: Graph, group: NodeGroup) -> Iterator[str]:
    if group.instance is None:
        yield f"instance type {group.type_name or 'unknown'} is not in the catalogue, so its taint is unknown"
        return
    found = {(text(at(each, "key")), text(at(each, "effect"))) for each in items(group.resource.inputs.get("taints"))}
    for taint in graph.catalogue.taints(group.type_name):
        if (taint.key, taint.eks_effect) not in found:
            shown = ", ".join(sorted(f"{key}:{effect}" for key, effect in found)) or "unset"
            yield f"taints is {shown}, wanted {taint.key}:{taint.eks_effect}"
    labels = mapping(group.resource.inputs.get("labels"))
    wanted = graph.catalogue.node_labels(group.type_name)
    for key, value in wanted.items():
        if not _set_by_eks(key) and labels.get(key) != value:
            yield f"labels[{key}] is {show(labels.get(key))}, wanted {show(value)}"
    if not labels:
        yield "labels is unset, wanted labels that name the accelerator"


def _set_by_eks(label: str) -> bool:
    """Return whether kubelet or EKS puts the label on the node, so that a node group may not."""
    return label.partition("/")[0].endswith(("kubernetes.io", "k8s.aws", "eks.amazonaws.com"))


def _ami_faults(group: NodeGroup) -> Iterator[str]:
    found = group.resource.inputs.get("amiType")
    if group.instance is None:
        yield f"instance type {group.type_name or 'unknown'} is not in the catalogue, so its AMI family is unknown"
        return
    wanted = group.instance.ami_type
    bottlerocket = "BOTTLEROCKET_x86_64_NVIDIA" if group.instance.family == "nvidia" else "BOTTLEROCKET_x86_64"
    if found not in (wanted, bottlerocket, f"{bottlerocket}_FIPS"):
        yield f'amiType is {show(found)} on {group.type_name}, wanted "{wanted}"'


@rule("R94", "Let a gate open the nodes that it closes, and no others", "high", "node-readiness-controller#253, own")
def fabric_gate(graph: Graph) -> Iterator[Finding]:
    """Nodes with the gate's taint take no job until the gate has tested them: a pool that the gate does not know stays
    closed for ever. Beside gated pools one without the taint takes jobs on untested nodes. Karpenter starts nodes for
    jobs whose pods do not tolerate a startup taint, and none where the same taint is a lasting one."""
    found = [
        (group.resource, "taints", text(mapping(group.resource.inputs.get("labels")).get(POOL_LABEL)))
        for group in graph.accelerator_groups
    ]
    for pool in node_pools(graph):
        if any(name in graph.catalogue and graph.catalogue.taints(name) for name in pool.types):
            found.append((pool.resource, "spec.template.spec.startupTaints", object_name(pool.resource)))
    gates = [each for each in graph.of_type(DEPLOYMENT) if object_name(each) == FABRIC_GATE]
    known = {name for each in gates for name in _gated_pools(each)}
    is_tainted = {resource.urn: _has_gate_taint(at(resource.inputs, path)) for resource, path, _ in found}
    for resource, path, name in found if gates or any(is_tainted.values()) else ():
        faults = []
        if not is_tainted[resource.urn]:
            faults.append(f"{path} lacks {FABRIC_UNTESTED.key}, wanted it as on the other pools of the gate")
        elif name not in known:
            faults.append(f"{path} has {FABRIC_UNTESTED.key}, and no gate knows the pool {name}: wanted a gate for it")
        if _has_gate_taint(at(resource.inputs, "spec.template.spec.taints")):
            faults.append(f"spec.template.spec.taints has {FABRIC_UNTESTED.key}, wanted it under startupTaints")
        yield from judged(resource, faults, "its nodes are closed until the gate opens them")


def _has_gate_taint(taints: Json) -> bool:
    return any(at(each, "key") == FABRIC_UNTESTED.key for each in items(taints))


def _gated_pools(gate: Resource) -> Iterator[str]:
    """Yield the pools in the settings of a gate's Deployment."""
    for container in items(at(gate.inputs, "spec.template.spec.containers")):
        for each in items(at(container, "env")):
            if at(each, "name") == "SETTINGS":
                yield from mapping(at(document(at(each, "value")), "pools"))
