"""Placeholders for the look-ups that most programs make: recognisable, and of the SDK's own result types."""

import hashlib
import importlib
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from trainium_eks.model.catalogue import regions
from trainium_eks.plan import sdk
from trainium_eks.plan.backend import ACCOUNT, TIME


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
    """Return the made-up answer: every field of the SDK's result class has a value. None for a look-up that neither the
    table nor an installed SDK has."""
    answerer = _ANSWERS.get(lookup.token)
    if answerer is None and _result_class(lookup.token) is None:
        return None
    return completed(lookup, answerer(lookup) if answerer else {})


def completed(lookup: Lookup, answer: Mapping[str, Any]) -> Answer:
    """Return the answer with the other fields of the SDK's result class: the arguments, and made-up values."""
    result = _result_class(lookup.token)
    if result is None:
        return {**answer}
    fields = sdk.output_types(result)
    asked = {name: value for name, value in lookup.arguments.items() if name in fields}
    given = {**asked, **answer}
    made = {name: _made_up(lookup, name, type_) for name, type_ in fields.items() if name not in given}
    return {**made, **given}


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


def _made_up(lookup: Lookup, name: str, type_: Any) -> Any:
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin in (typing.Union, types.UnionType):
        return _made_up(lookup, name, next(each for each in arguments if each is not type(None)))
    if origin is not None and issubclass(origin, Mapping):
        return {}
    if origin is not None and issubclass(origin, Sequence):
        # One of each kind of object, so that `result.identities[0]` works; texts are only where the table has them.
        return [_made_up(lookup, name, arguments[0])] if sdk.is_output_type(arguments[0]) else []
    if isinstance(type_, type) and sdk.is_output_type(type_):
        return {field: _made_up(lookup, field, inner) for field, inner in sdk.output_types(type_).items()}
    if type_ in (bool, int, float):
        return type_()
    return _text(lookup, name)


def _text(lookup: Lookup, name: str) -> str:
    service = lookup.token.split(":")[1].partition("/")[0]
    fixed = {"region": lookup.region, "ownerId": ACCOUNT, "accountId": ACCOUNT, "id": f"sim-{lookup.digest}"}
    if name in fixed:
        return fixed[name]
    if name == "arn" or name.endswith("Arn"):
        return lookup.arn("sts" if service == "index" else service, f"sim-{lookup.digest}")
    return TIME if name in ("createdAt", "creationDate") else f"sim-{name}-{lookup.digest}"


# --- the table ----------------------------------------------------------------------------------------------------


def _caller_identity(lookup: Lookup) -> Answer:
    arn = lookup.arn("iam", "user/sim")
    return {"accountId": ACCOUNT, "id": ACCOUNT, "arn": arn, "userId": "AIDASIM"}


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


def _subnets(lookup: Lookup) -> Answer:
    return {"ids": [f"subnet-sim-{lookup.digest}-{number}" for number in (1, 2)]}


def _identified(prefix: str, service: str, kind: str) -> Callable[[Lookup], Answer]:
    """Return an answerer for a thing of EC2 with an id of its form: the requested id, or a made-up one."""

    def answer(lookup: Lookup) -> Answer:
        identity = lookup.text("id", f"{prefix}-sim-{lookup.digest}")
        arn = lookup.arn(service, f"{kind}/{identity}")
        return {"id": identity, "arn": arn}

    return answer


def _vpc(lookup: Lookup) -> Answer:
    return {**_identified("vpc", "ec2", "vpc")(lookup), "cidrBlock": lookup.text("cidrBlock", "10.0.0.0/16")}


def _subnet(lookup: Lookup) -> Answer:
    return {
        **_identified("subnet", "ec2", "subnet")(lookup),
        "vpcId": lookup.text("vpcId", f"vpc-sim-{lookup.digest}"),
        "cidrBlock": lookup.text("cidrBlock", "10.0.0.0/18"),
    }


def _ami(lookup: Lookup) -> Answer:
    identity = f"ami-sim-{lookup.digest}"
    return {"id": identity, "imageId": identity, "arn": lookup.arn("ec2", f"image/{identity}", account="")}


def _named(service: str, kind: str) -> Callable[[Lookup], Answer]:
    """Return an answerer for a thing that is looked up by its name."""

    def answer(lookup: Lookup) -> Answer:
        name = lookup.text("name", f"sim-{lookup.digest}")
        return {"id": name, "name": name, "arn": lookup.arn(service, f"{kind}{name}")}

    return answer


def _parameter(lookup: Lookup) -> Answer:
    value = f"sim-value-{lookup.digest}"
    name = lookup.text("name", "sim").removeprefix("/")
    arn = lookup.arn("ssm", f"parameter/{name}")
    return {"id": lookup.text("name", "sim"), "arn": arn, "value": value, "insecureValue": value, "type": "String"}


def _cluster(lookup: Lookup) -> Answer:
    return {
        **_named("eks", "cluster/")(lookup),
        "endpoint": f"https://sim-{lookup.digest}.eks.{lookup.region}.sim",
        "status": "ACTIVE",
    }


def _bucket(lookup: Lookup) -> Answer:
    bucket = lookup.text("bucket", f"sim-{lookup.digest}")
    return {"id": bucket, "bucket": bucket, "arn": f"arn:{regions.partition(lookup.region)}:s3:::{bucket}"}


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
    "aws:acm/getCertificate:getCertificate": lambda lookup: {"arn": lookup.arn("acm", f"certificate/{lookup.digest}")},
    "aws:ec2/getAmi:getAmi": _ami,
    "aws:ec2/getSecurityGroup:getSecurityGroup": _identified("sg", "ec2", "security-group"),
    "aws:ec2/getSubnet:getSubnet": _subnet,
    "aws:ec2/getSubnets:getSubnets": _subnets,
    "aws:ec2/getVpc:getVpc": _vpc,
    "aws:ecr/getRepository:getRepository": _named("ecr", "repository/"),
    "aws:eks/getAddonVersion:getAddonVersion": lambda lookup: {"version": f"v0.0.0-sim-{lookup.digest}"},
    "aws:eks/getCluster:getCluster": _cluster,
    "aws:eks/getClusterAuth:getClusterAuth": lambda lookup: {"token": f"sim-{lookup.digest}"},
    "aws:iam/getPolicy:getPolicy": _named("iam", "policy/"),
    "aws:iam/getPolicyDocument:getPolicyDocument": _policy_document,
    "aws:iam/getRole:getRole": _named("iam", "role/"),
    "aws:index/getAvailabilityZones:getAvailabilityZones": _zones,
    "aws:index/getCallerIdentity:getCallerIdentity": _caller_identity,
    "aws:index/getDefaultTags:getDefaultTags": lambda _lookup: {"tags": {}},
    "aws:index/getPartition:getPartition": _partition,
    "aws:index/getRegion:getRegion": _region,
    "aws:kms/getAlias:getAlias": _named("kms", ""),
    "aws:kms/getKey:getKey": lambda lookup: {"arn": lookup.arn("kms", f"key/sim-{lookup.digest}")},
    "aws:route53/getZone:getZone": lambda lookup: {"zoneId": f"ZSIM{lookup.digest.upper()}"},
    "aws:s3/getBucket:getBucket": _bucket,
    "aws:secretsmanager/getSecret:getSecret": _named("secretsmanager", "secret:"),
    "aws:secretsmanager/getSecretVersion:getSecretVersion": lambda lookup: {
        "secretString": f"sim-{lookup.digest}",
    },
    "aws:ssm/getParameter:getParameter": _parameter,
    "kubernetes:helm:template": lambda _lookup: {"result": []},
    "kubernetes:kustomize:directory": lambda _lookup: {"result": []},
    "kubernetes:yaml:decode": _decoded_yaml,
}

CERTAIN = frozenset({"aws:iam/getPolicyDocument:getPolicyDocument", "kubernetes:yaml:decode"})
"""Look-ups with an answer that follows from the arguments alone: it is no placeholder."""
