"""Placeholders for the look-ups that most programs make: recognisable, and of the provider's form."""

import hashlib
import importlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from trainium_eks.model.catalogue import regions
from trainium_eks.plan import sdk
from trainium_eks.plan.backend import ACCOUNT


@dataclass(frozen=True)
class Lookup:
    """One look-up of a program."""

    token: str
    """``aws:ec2/getVpc:getVpc``."""
    arguments: Mapping[str, Any]
    region: str

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that belong to this look-up alone."""
        text = json.dumps([self.token, self.arguments], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def text(self, name: str, default: str) -> str:
        """Return an argument as text."""
        return str(self.arguments.get(name) or default)

    def arn(self, service: str, resource: str, *, account: str = ACCOUNT) -> str:
        """Return an ARN in the partition of the region."""
        place = "" if service == "iam" else self.region
        return f"arn:{regions.partition(self.region)}:{service}:{place}:{account}:{resource}"


Answer = dict[str, Any]


def placeholder(lookup: Lookup) -> Answer | None:
    """Return the made-up answer: the arguments, and the fields that programs read. None for a look-up that the table
    does not have."""
    answerer = _ANSWERS.get(lookup.token)
    return {**lookup.arguments, **answerer(lookup)} if answerer else None


def fields(token: str) -> tuple[str, ...]:
    """Return the fields of an answer, empty when the SDK has no result class for the look-up."""
    result = _result_class(token)
    return tuple(sorted(sdk.output_types(result))) if result else ()


def _result_class(token: str) -> type | None:
    """Return ``pulumi_aws.ec2.get_vpc.GetVpcResult`` for ``aws:ec2/getVpc:getVpc``."""
    package, module, name = [*token.split(":", 2), "", ""][:3]
    folder = module.partition("/")[0]
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    package = f"pulumi_{package.replace('-', '_')}"
    path = package if folder in ("", "index") else f"{package}.{folder}"
    try:
        # As a program reaches it. Importing the function's module would put that in the function's place.
        getattr(importlib.import_module(path), snake, None)
    except ImportError:
        return None
    found = getattr(sys.modules.get(f"{path}.{snake}"), f"{name[:1].upper()}{name[1:]}Result", None)
    return found if isinstance(found, type) and sdk.is_output_type(found) else None


# --- the table ----------------------------------------------------------------------------------------------------


def _region(lookup: Lookup) -> Answer:
    region = lookup.text("region", lookup.text("name", lookup.region))
    return {"region": region, "name": region, "id": region, "endpoint": f"ec2.{region}.amazonaws.com"}


def _partition(lookup: Lookup) -> Answer:
    partition = regions.partition(lookup.region)
    suffix = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
    return {"partition": partition, "id": partition, "dnsSuffix": suffix, "reverseDnsPrefix": "com.amazonaws"}


def _zones(lookup: Lookup) -> Answer:
    # Three, as most regions have; the letters of real zones differ between accounts.
    return {
        "names": [f"{lookup.region}-sim-{number}" for number in (1, 2, 3)],
        "zoneIds": [f"sim-az{number}" for number in (1, 2, 3)],
        "groupNames": [lookup.region],
        "id": lookup.region,
    }


def _of_ec2(lookup: Lookup, prefix: str, kind: str) -> Answer:
    """Return id and ARN of a thing of EC2: the requested id, or one of its form."""
    identity = lookup.text("id", f"{prefix}-sim-{lookup.digest}")
    return {"id": identity, "arn": lookup.arn("ec2", f"{kind}/{identity}"), "tags": {}}


def _vpc(lookup: Lookup) -> Answer:
    return {**_of_ec2(lookup, "vpc", "vpc"), "cidrBlock": lookup.text("cidrBlock", "10.0.0.0/16")}


def _subnet(lookup: Lookup) -> Answer:
    return {
        **_of_ec2(lookup, "subnet", "subnet"),
        "vpcId": lookup.text("vpcId", f"vpc-sim-{lookup.digest}"),
        "cidrBlock": lookup.text("cidrBlock", "10.0.0.0/18"),
        "availabilityZone": f"{lookup.region}-sim-1",
        "availabilityZoneId": "sim-az1",
    }


def _ami(lookup: Lookup) -> Answer:
    identity = f"ami-sim-{lookup.digest}"
    return {"id": identity, "imageId": identity, "arn": lookup.arn("ec2", f"image/{identity}", account="")}


def _parameter(lookup: Lookup) -> Answer:
    value, name = f"sim-value-{lookup.digest}", lookup.text("name", "sim")
    arn = lookup.arn("ssm", f"parameter/{name.removeprefix('/')}")
    return {"id": name, "arn": arn, "value": value, "insecureValue": value, "type": "String"}


def _cluster(lookup: Lookup) -> Answer:
    name = lookup.text("name", f"sim-{lookup.digest}")
    network = {"vpcId": f"vpc-sim-{lookup.digest}", "clusterSecurityGroupId": f"sg-sim-{lookup.digest}"}
    return {
        "id": name,
        "arn": lookup.arn("eks", f"cluster/{name}"),
        "endpoint": f"https://sim-{lookup.digest}.eks.{lookup.region}.sim",
        "status": "ACTIVE",
        "certificateAuthorities": [{"data": f"sim-{lookup.digest}"}],
        "vpcConfig": {**network, "subnetIds": [], "securityGroupIds": []},
    }


def _policy_document(lookup: Lookup) -> Answer:
    """Return a policy document without AWS: the provider too makes it from the arguments alone."""
    document: Answer = {"Version": lookup.text("version", "2012-10-17")}
    if lookup.arguments.get("policyId"):
        document["Id"] = lookup.arguments["policyId"]
    statements: list[Answer] = []
    for text in lookup.arguments.get("sourcePolicyDocuments") or ():
        statements += _listed(json.loads(text).get("Statement", []))
    statements += [_statement(each) for each in lookup.arguments.get("statements") or ()]
    for text in lookup.arguments.get("overridePolicyDocuments") or ():
        for override in _listed(json.loads(text).get("Statement", [])):
            same = [each for each in statements if override.get("Sid") and each.get("Sid") == override["Sid"]]
            statements = [each for each in statements if each not in same] + [override]
    document["Statement"] = statements
    text = json.dumps(document, indent=2)
    minified = json.dumps(document, separators=(",", ":"))
    return {"id": lookup.digest, "json": text, "minifiedJson": minified, "version": document["Version"]}


def _statement(given: Mapping[str, Any]) -> Answer:
    statement: Answer = {"Sid": given["sid"]} if given.get("sid") else {}
    statement["Effect"] = given.get("effect") or "Allow"
    for field in ("actions", "notActions", "resources", "notResources"):
        if given.get(field):
            statement[f"{field[0].upper()}{field[1:-1]}"] = _one_or_all(given[field])
    for field in ("principals", "notPrincipals"):
        if given.get(field):
            statement[f"{field[0].upper()}{field[1:-1]}"] = _principal(given[field])
    conditions: dict[str, Answer] = {}
    for condition in given.get("conditions") or ():
        conditions.setdefault(condition["test"], {})[condition["variable"]] = _one_or_all(condition["values"])
    return {**statement, "Condition": conditions} if conditions else statement


def _principal(principals: Sequence[Mapping[str, Any]]) -> Any:
    if [(each["type"], list(each["identifiers"])) for each in principals] == [("*", ["*"])]:
        return "*"
    merged: dict[str, list[str]] = {}
    for each in principals:
        merged.setdefault(each["type"], []).extend(each["identifiers"])
    return {kind: _one_or_all(identifiers) for kind, identifiers in merged.items()}


def _one_or_all(values: Sequence[str]) -> Any:
    """Return a list as the provider writes it: a single value stands alone, several in falling order."""
    return values[0] if len(values) == 1 else sorted(values, reverse=True)


def _listed(statements: Any) -> list[Answer]:
    return statements if isinstance(statements, list) else [statements]


def _decoded_yaml(lookup: Lookup) -> Answer:
    """Return the objects of a YAML text without a cluster: the provider too reads the text alone."""
    documents = yaml.safe_load_all(lookup.text("text", ""))
    return {"result": [document for document in documents if document]}


_ANSWERS: Mapping[str, Callable[[Lookup], Answer]] = {
    "aws:ec2/getAmi:getAmi": _ami,
    "aws:ec2/getSecurityGroup:getSecurityGroup": lambda lookup: _of_ec2(lookup, "sg", "security-group"),
    "aws:ec2/getSubnet:getSubnet": _subnet,
    "aws:ec2/getSubnets:getSubnets": lambda lookup: {"ids": [f"subnet-sim-{lookup.digest}-{n}" for n in (1, 2)]},
    "aws:ec2/getVpc:getVpc": _vpc,
    "aws:eks/getCluster:getCluster": _cluster,
    "aws:eks/getClusterAuth:getClusterAuth": lambda lookup: {"token": f"sim-{lookup.digest}"},
    "aws:iam/getPolicyDocument:getPolicyDocument": _policy_document,
    "aws:index/getAvailabilityZones:getAvailabilityZones": _zones,
    "aws:index/getCallerIdentity:getCallerIdentity": lambda lookup: {
        **dict.fromkeys(("accountId", "id"), ACCOUNT),
        "arn": lookup.arn("iam", "user/sim"),
        "userId": "AIDASIM",
    },
    "aws:index/getPartition:getPartition": _partition,
    "aws:index/getRegion:getRegion": _region,
    "aws:ssm/getParameter:getParameter": _parameter,
    "kubernetes:helm:template": lambda _lookup: {"result": []},
    "kubernetes:kustomize:directory": lambda _lookup: {"result": []},
    "kubernetes:yaml:decode": _decoded_yaml,
}

CERTAIN = frozenset({"aws:iam/getPolicyDocument:getPolicyDocument", "kubernetes:yaml:decode"})
"""Look-ups with an answer that follows from the arguments alone: it is no placeholder."""
