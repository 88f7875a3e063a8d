"""The children of ``pulumi_eks.Cluster``, so that a plan shows them and the component's outputs can be used.

The component is built by another process, which does not run while a program is recorded. Its registrations with the
options that TrainiumCluster uses were read in its source (pulumi-eks 4.4: ``cluster.ts``) and seen on a real engine:
the cluster and a Kubernetes provider. With options that make it build more it is a component like any other of another
package, with unknown children and outputs.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trainium_eks.plan.backend import ACCOUNT
from trainium_eks.plan.graph import UNKNOWN, Options, Resource
from trainium_eks.plan.recording.wire import Reference

TYPE = "eks:index:Cluster"

Create = Callable[[Resource], tuple[str, Mapping[str, Any]]]
"""Function that registers a child (its ``urn`` is made from the rest) and returns its URN and its state with ``id``."""


# Input to the value that it must have; None means "not given, or false or empty".
_REQUIRED: Mapping[str, object] = {
    "skipDefaultNodeGroup": True,
    "skipDefaultSecurityGroups": True,
    "useDefaultVpcCni": True,
    "autoMode": None,
    "clusterSecurityGroup": None,
    "createInstanceRole": None,
    "createOidcProvider": None,
    "creationRoleProvider": None,
    "fargate": None,
    "instanceRole": None,
    "instanceRoles": None,
    "accessEntries": None,
    "roleMappings": None,
    "storageClasses": None,
    "userMappings": None,
}


def construct(
    component: Resource, inputs: Mapping[str, Any], provider: str, create: Create
) -> tuple[dict[str, Any], str]:
    """Register the component's children; return its outputs, and the URN of its cluster.

    The inputs are in clear, and :func:`unsupported_inputs` finds none among them. The provider is the URN of the AWS
    provider that the component was given, or empty.
    """
    inherited = Options(protect=component.options.protect)
    base = Resource(urn="", type="", name="", parent=component.urn, provider=provider, options=inherited)
    cluster_urn, cluster = create(_cluster(component, inputs, base))
    kubeconfig = _kubeconfig(cluster)
    kubeconfig_json = UNKNOWN if kubeconfig == UNKNOWN else json.dumps(kubeconfig, separators=(",", ":"))
    create(
        replace(
            base,
            type="pulumi:providers:kubernetes",
            name=f"{component.name}-eks-k8s",
            provider="",
            inputs={"kubeconfig": kubeconfig_json},
            dependencies=(cluster_urn,),
            property_dependencies={"kubeconfig": (cluster_urn,)},
        )
    )
    reference = Reference(cluster_urn, "" if cluster["id"] == UNKNOWN else cluster["id"])
    security_group = _within(cluster.get("vpcConfig"), "clusterSecurityGroupId")
    identities = cluster.get("identities")
    issuer = UNKNOWN if identities in (None, UNKNOWN) else identities[0]["oidcs"][0]["issuer"]
    properties: dict[str, Any] = {
        "core": {
            "cluster": reference,
            "endpoint": cluster["endpoint"],
            "instanceRoles": [],
            "kubeconfig": kubeconfig,
            "subnetIds": inputs.get("subnetIds") or inputs.get("privateSubnetIds") or [],
            "vpcId": inputs.get("vpcId", UNKNOWN),
        },
        "eksCluster": reference,
        "instanceRoles": [],
        "kubeconfig": kubeconfig,
        "kubeconfigJson": kubeconfig_json,
        "clusterSecurityGroupId": security_group,
        "nodeSecurityGroupId": security_group,
        "clusterIngressRuleId": "",
        "defaultNodeGroupAsgName": "",
        "fargateProfileId": "",
        "fargateProfileStatus": "",
        "oidcProviderArn": "",
        "oidcProviderUrl": issuer,
        "oidcIssuer": issuer.removeprefix("https://"),
        "autoModeNodeRoleName": "",
    }
    return properties, cluster_urn


def unsupported_inputs(inputs: Mapping[str, Any]) -> str:
    """Return the requirements on the inputs that do not hold, without which the component builds more than
    :func:`construct` knows; empty when all hold."""
    wrong = []
    for name, required in _REQUIRED.items():
        value = inputs.get(name)
        if (required is None and value) or (required is not None and value != required):
            wrong.append(f"{name} must be {'left out' if required is None else str(required).lower()}")
    for name in ("corednsAddonOptions", "kubeProxyAddonOptions"):
        options = inputs.get(name)
        if not isinstance(options, Mapping) or options.get("enabled") is not False:
            wrong.append(f"{name} must be {{enabled: false}}")
    if not inputs.get("serviceRole"):
        wrong.append("serviceRole must be given")
    if inputs.get("authenticationMode") != "API":
        wrong.append("authenticationMode must be API")
    return "; ".join(wrong)


def _cluster(component: Resource, inputs: Mapping[str, Any], base: Resource) -> Resource:
    role = inputs["serviceRole"]  # a reference to the program's own, which is its name here
    given = {
        "name": inputs.get("name"),
        "version": inputs.get("version"),
        "enabledClusterLogTypes": inputs.get("enabledClusterLogTypes"),
        "upgradePolicy": inputs.get("upgradePolicy"),
        "deletionProtection": inputs.get("deletionProtection"),
        "kubernetesNetworkConfig": _network(inputs),
        "encryptionConfig": {"provider": {"keyArn": key}, "resources": ["secrets"]}
        if (key := inputs.get("encryptionConfigKeyArn"))
        else None,
    }
    name = f"{component.name}-eksCluster"
    vpc_config = {
        "subnetIds": inputs.get("subnetIds")
        or [*(inputs.get("publicSubnetIds") or ()), *(inputs.get("privateSubnetIds") or ())],
        "endpointPrivateAccess": inputs.get("endpointPrivateAccess"),
        "endpointPublicAccess": inputs.get("endpointPublicAccess"),
        "publicAccessCidrs": inputs.get("publicAccessCidrs"),
    }
    came_from = _came_from(component)
    return replace(
        base,
        type="aws:eks/cluster:Cluster",
        name=name,
        inputs={
            **{field: value for field, value in given.items() if value is not None},
            "accessConfig": {
                "authenticationMode": inputs["authenticationMode"],
                "bootstrapClusterCreatorAdminPermissions": True,
            },
            "bootstrapSelfManagedAddons": inputs.get("bootstrapSelfManagedAddons", True),
            "roleArn": UNKNOWN if role == UNKNOWN else f"arn:aws:iam::{ACCOUNT}:role/{role}",
            "tags": {"Name": name, **(inputs.get("clusterTags") or {}), **(inputs.get("tags") or {})},
            "vpcConfig": {field: value for field, value in vpc_config.items() if value is not None},
        },
        dependencies=tuple(sorted({urn for urns in came_from.values() for urn in urns})),
        property_dependencies=came_from,
        options=replace(
            base.options,
            ignore_changes=("accessConfig.bootstrapClusterCreatorAdminPermissions", "bootstrapSelfManagedAddons"),
        ),
    )


def _network(inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    family, service_range = inputs.get("ipFamily"), inputs.get("kubernetesServiceIpAddressRange")
    if not family and not service_range:
        return None
    network = {"ipFamily": family or "ipv4"}
    return {**network, "serviceIpv4Cidr": service_range} if service_range and family != "ipv6" else network


_CARRIED: Mapping[str, tuple[str, ...]] = {
    "encryptionConfig": ("encryptionConfigKeyArn",),
    "name": ("name",),
    "roleArn": ("serviceRole",),
    "tags": ("clusterTags", "tags"),
    "version": ("version",),
    "vpcConfig": ("privateSubnetIds", "publicAccessCidrs", "publicSubnetIds", "subnetIds"),
}
"""Input of the cluster to the component's inputs that it is made from."""


def _came_from(component: Resource) -> dict[str, tuple[str, ...]]:
    found = {
        field: tuple(sorted({urn for name in names for urn in component.property_dependencies.get(name, ())}))
        for field, names in _CARRIED.items()
    }
    return {field: urns for field, urns in sorted(found.items()) if urns}


def _kubeconfig(cluster: Mapping[str, Any]) -> dict[str, Any] | str:
    """Return the kubeconfig that pulumi-eks makes, in its own words, or unknown as a whole, as in a preview."""
    certificate = _within(cluster.get("certificateAuthority"), "data")
    parts = (cluster.get("name"), cluster.get("endpoint"), cluster.get("arn"), certificate)
    if UNKNOWN in parts:
        return UNKNOWN
    region = str(cluster["arn"]).split(":")[3]
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", cluster["name"], "--output", "json"]
    execution = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": arguments,
        "env": [
            {
                "name": "KUBERNETES_EXEC_INFO",
                "value": '{"apiVersion": "client.authentication.k8s.io/v1beta1"}',
            }
        ],
    }
    server = {"server": cluster["endpoint"], "certificate-authority-data": certificate}
    return {
        "apiVersion": "v1",
        "clusters": [{"cluster": server, "name": "kubernetes"}],
        "contexts": [{"context": {"cluster": "kubernetes", "user": "aws"}, "name": "aws"}],
        "current-context": "aws",
        "kind": "Config",
        "users": [{"name": "aws", "user": {"exec": execution}}],
    }


def _within(value: Any, field: str) -> str:
    return str(value.get(field, UNKNOWN)) if isinstance(value, Mapping) else UNKNOWN
