"""Checks of the deployer's account, region and rights."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from trainium_eks.aws.account import NotCheckedError, RequestError
from trainium_eks.model.catalogue import regions
from trainium_eks.model.finding import Finding
from trainium_eks.observe.alerts import runbook
from trainium_eks.operate.preflight import deploy_rights
from trainium_eks.operate.preflight.deploy_rights import AccountRegion, IamRequest
from trainium_eks.operate.preflight.existing_resources import AccountState
from trainium_eks.operate.preflight.question import Checks, Question, failed, passed, warned

AT_ONCE = 8
"""Simulations at a time; each takes IAM about a second."""

_ALLOWS_ALL = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
"""A policy beside which a boundary alone decides."""

_MOST_SHOWN = 6
"""Missing actions that one line names."""

SERVICE_ROLES: Mapping[str, str] = {
    "eks.amazonaws.com": "AWSServiceRoleForAmazonEKS",
    "eks-nodegroup.amazonaws.com": "AWSServiceRoleForAmazonEKSNodegroup",
    "autoscaling.amazonaws.com": "AWSServiceRoleForAutoScaling",
    "spot.amazonaws.com": "AWSServiceRoleForEC2Spot",
    "fsx.amazonaws.com": "AWSServiceRoleForAmazonFSx",
    "pullthroughcache.ecr.amazonaws.com": "AWSServiceRoleForECRPullThroughCache",
    "sagemaker.application-autoscaling.amazonaws.com": "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint",
}
"""Service to its service-linked role, in each account that uses the service (the services' own user guides)."""


def questions(present: AccountState) -> Iterator[Question]:
    """Yield the questions about account, region, access entries, rights and service-linked roles."""
    needs, checks = present.needs, _IdentityChecks(present)
    yield Question("account/id", "account", checks.account)
    yield Question("account/region", "region", checks.region)
    if needs.kubernetes:
        yield Question("account/deployer", "the deployer's access entry", checks.deployer)
    yield Question("account/rights", "the deployer's rights", checks.rights)
    if needs.permissions_boundary:
        yield Question("account/boundary", "what the roles' boundary leaves them", checks.boundary)
    for service in needs.linked_services:
        role = SERVICE_ROLES[service]
        yield Question(f"account/{role}", f"role {role}", partial(checks.service_role, service))


def _deploy_account() -> str:
    """Return the command, for an administrator, that makes or updates the account's stack and keeps its parameters."""
    template = os.path.relpath(runbook.document("bootstrap.yaml"))
    made_by = f"aws cloudformation deploy --stack-name training-bootstrap --template-file {template}"
    return f"{made_by} --capabilities CAPABILITY_NAMED_IAM"


class _IdentityChecks(Checks):
    """Checks of the caller."""

    def account(self) -> Finding:
        """Check that the credentials belong to an account that the config allows."""
        caller = self._account.caller()
        allowed = self._needs.accounts
        if not allowed:
            return passed(f"{caller.account}, as {caller.arn} (allowedAccountIds allows any)")
        if caller.account not in allowed:
            detail = f"the credentials are of {caller.account}, the config allows {', '.join(allowed)}"
            return failed(
                detail, f"log in to {allowed[0]} (AWS_PROFILE=…), or add {caller.account} to allowedAccountIds"
            )
        return passed(f"{caller.account}, as {caller.arn}")

    def region(self) -> Finding:
        """Check that the account has the region enabled."""
        region = self._account.region
        # A disabled region answers nothing, so another region of the partition is queried.
        home = {"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}.get(
            self._account.partition, region
        )
        absent = "InvalidParameterValue"
        answer = self._account.find(
            "ec2", "describe_regions", absent=absent, region=home, RegionNames=[region], AllRegions=True
        )
        if not answer or not answer["Regions"]:
            return failed(f"AWS knows no region {region}", "correct `region` in the config")
        if answer["Regions"][0].get("OptInStatus") == "not-opted-in":
            remedy = f"aws account enable-region --region-name {region} (takes minutes to hours)"
            return failed(f"{region} is not enabled in this account", remedy)
        return passed(f"{region} is enabled")

    def deployer(self) -> Finding:
        """Check that no access entry names the deployer: EKS gives the cluster's creator an entry, and refuses a
        second."""
        caller = self._account.caller()
        for arn, resource in self._needs.admins.items():
            if _is_same(arn, caller.account, caller.role, caller.arn):
                where = "cluster.adminPrincipals or a namespace's principals"
                detail = f"{arn} deploys, and {resource} gives it a second access entry: EKS refuses that"
                return failed(detail, f"remove it from {where}: the deployer is an administrator already")
        return passed("the deployer is in no other access entry")

    def service_role(self, service: str) -> Finding:
        """Check that the service-linked role exists; AWS creates it at the first use."""
        role = SERVICE_ROLES[service]
        if self._account.find("iam", "get_role", absent="NoSuchEntity", RoleName=role) is not None:
            return passed("there")
        detail = "not there: AWS makes it at the first use, if the deployer may call iam:CreateServiceLinkedRole"
        return warned(detail, f"aws iam create-service-linked-role --aws-service-name {service}")

    def rights(self) -> Finding:
        """Check that IAM allows the deployer all actions that the program's resource types need."""
        caller = self._account.caller()
        place = AccountRegion(
            caller.account, self._account.region, self._account.partition, self._needs.permissions_boundary
        )
        if caller.arn.endswith(":root"):
            raise NotCheckedError("IAM does not simulate the root user: deploy with a role")
        asked = deploy_rights.needed(self._needs.graph, place)
        missing = self._refused(self._principal(), asked)
        actions = len({request.action for request in asked})
        if not missing:
            return passed(f"all {actions} actions that the stack's types ask for are allowed")
        shown = ", ".join(missing[:_MOST_SHOWN])
        more = f" and {len(missing) - _MOST_SHOWN} more" if len(missing) > _MOST_SHOWN else ""
        remedy = (
            f"deploy as the role training-deployer of the account's stack; {_deploy_account()} brings it up to date "
            "(--parameter-overrides Rights=wide, where its narrow rights lack them)"
        )
        if not place.boundary and "iam:CreateRole" in missing:
            remedy += "; with that policy, set `permissionsBoundary`: it makes no role without one"
        return failed(f"{len(missing)} of {actions} actions are denied: {shown}{more}", remedy)

    def boundary(self) -> Finding:
        """Check that the boundary is there, and that roles within it may use the existing buckets and keys."""
        arn = self._needs.permissions_boundary
        policy = self._account.find("iam", "get_policy", absent="NoSuchEntity", PolicyArn=arn)
        if policy is None:
            return failed(f"there is no policy {arn}", f"{_deploy_account()} makes trn-boundary")
        version = policy["Policy"]["DefaultVersionId"]
        answer = self._account.call("iam", "get_policy_version", PolicyArn=arn, VersionId=version)
        found = answer["PolicyVersion"]["Document"]
        document = found if isinstance(found, str) else json.dumps(found)
        partition, region = self._account.partition, self._account.region
        asked = [
            (f"arn:{partition}:s3:::{bucket.name}/x", ("s3:GetObject", "s3:PutObject"), "")
            for bucket in self._needs.buckets
        ]
        asked += [(key, ("kms:Decrypt", "kms:GenerateDataKey"), service) for key, service in self._needs.keys.items()]
        missing = []
        for resource, actions, service in asked:
            through = f"{service}.{region}.{regions.dns_suffix(region)}"
            # A key of others has a name of theirs; the boundary leaves roles each key whose tags do not count yet.
            known = {"kms:ViaService": through, "aws:ResourceTag/Name": "of others"}
            context = [_context_entry(name, value) for name, value in known.items()]
            results = self._account.pages(
                "iam",
                "simulate_custom_policy",
                "EvaluationResults",
                PolicyInputList=[_ALLOWS_ALL],
                PermissionsBoundaryPolicyInputList=[document],
                ActionNames=list(actions),
                ResourceArns=[resource],
                ContextEntries=context if service else [],
            )
            missing += [
                f"{each['EvalActionName']} on {resource}" for each in results if each["EvalDecision"] != "allowed"
            ]
        if not missing:
            return passed("there, with every bucket and key that the config names")
        named = {"DataBuckets": [bucket.name for bucket in self._needs.buckets], "ExistingKeyArns": [*self._needs.keys]}
        lists = " ".join(f"{parameter}={','.join(names)}" for parameter, names in named.items() if names)
        remedy = f"{_deploy_account()} --parameter-overrides {lists}, each with what the account's other stacks name"
        return failed(f"{arn} denies {', '.join(missing)}", remedy)

    def _principal(self) -> str:
        """Return the ARN that IAM simulates: the user's, or the role's, read from IAM because a session's ARN lacks the
        role's path."""
        caller = self._account.caller()
        if not caller.role:
            return caller.arn
        try:
            return str(self._account.call("iam", "get_role", RoleName=caller.role)["Role"]["Arn"])
        except (NotCheckedError, RequestError):
            return f"arn:{self._account.partition}:iam::{caller.account}:role/{caller.role}"

    def _refused(self, principal: str, asked: Iterable[IamRequest]) -> list[str]:
        """Return the actions that IAM would deny on some resource, each once."""
        together: dict[str, list[IamRequest]] = {}
        for request in asked:
            together.setdefault(f"{request.resource} {sorted(request.context.items())}", []).append(request)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = pool.map(partial(self._simulate, principal), together.values())
            denied = Counter(action for answer in answers for action in answer)
        return sorted(denied)

    def _simulate(self, principal: str, requests: Sequence[IamRequest]) -> list[str]:
        first = requests[0]
        results: list[Mapping[str, Any]] = self._account.pages(
            "iam",
            "simulate_principal_policy",
            "EvaluationResults",
            PolicySourceArn=principal,
            ActionNames=sorted({request.action for request in requests}),
            ResourceArns=[first.resource],
            ContextEntries=[_context_entry(key, value) for key, value in first.context.items()],
        )
        return [each["EvalActionName"] for each in results if each["EvalDecision"] != "allowed"]


def _context_entry(key: str, value: str | Sequence[str]) -> Mapping[str, Any]:
    """Return a condition key's value as IAM's simulation takes it."""
    return {
        "ContextKeyName": key,
        "ContextKeyValues": [value] if isinstance(value, str) else list(value),
        "ContextKeyType": "string" if isinstance(value, str) else "stringList",
    }


def _is_same(arn: str, account: str, role: str, caller: str) -> bool:
    """Return whether an access entry's ARN is the caller's. The paths of roles are ignored, because a session's ARN
    lacks them."""
    if not role:
        return arn == caller
    return f"::{account}:role/" in arn and arn.rpartition("/")[2] == role
