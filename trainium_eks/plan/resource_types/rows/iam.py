"""IAM: roles and their policies. IAM is global, so no resource here has a region."""

from trainium_eks.plan.backend import TIME, Answer, Answerer, Call
from trainium_eks.plan.resource_types import access, concerns
from trainium_eks.plan.resource_types.resource_type import Concern, RefusesDeletion, ResourceType


def _with_path(kind: str, prefix: str) -> Answerer:
    """Return the answers of a type whose names have a path: its kind in an ARN, and the prefix of its unique ids."""

    def answer(call: Call) -> Answer:
        name, path = call.name(), call.inputs.get("path") or "/"
        arn = call.arn("iam", f"{kind}{path}{name}", region="")
        return name, {"name": name, "arn": arn, "uniqueId": f"{prefix}SIM{call.digest.upper()}", "createDate": TIME}

    return answer


def _policy(call: Call) -> Answer:
    name, path = call.name(), call.inputs.get("path") or "/"
    arn = call.arn("iam", f"policy{path}{name}", region="")
    return arn, {"name": name, "arn": arn, "policyId": f"ANPASIM{call.digest.upper()}", "attachmentCount": 0}


def _role_policy(call: Call) -> Answer:
    name = call.name()
    return f"{call.text('role')}:{name}", {"name": name}


ROLE = ResourceType(
    token="aws:iam/role:Role",
    simulated=_with_path("role", "AROA"),
    named_by=("name",),
    replaced_by=("name", "namePrefix", "path"),
    seconds=2,
    refuses_deletion=RefusesDeletion("DeleteConflict: Cannot delete entity, must detach all policies first."),
    understood=(
        Concern("assumeRolePolicy", access.allows_more, "more principals may assume it", new=True),
        Concern("assumeRolePolicy", access.denies_less, "denies less"),
        Concern("permissionsBoundary", concerns.changed, "another bound of its rights, or none"),
    ),
    creation="",
)

POLICY = ResourceType(
    token="aws:iam/policy:Policy",
    simulated=_policy,
    named_by=("name",),
    replaced_by=("name", "namePrefix", "path", "description"),
    understood=access.POLICY,
    creation="",
)

ROLE_POLICY = ResourceType(
    token="aws:iam/rolePolicy:RolePolicy",
    simulated=_role_policy,
    named_by=("name",),
    tagged=False,
    replaced_by=("name", "namePrefix", "role"),
    understood=access.POLICY,
    creation="",
)

ROLE_POLICY_ATTACHMENT = ResourceType(
    token="aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    simulated=lambda call: (f"{call.text('role')}/{call.text('policyArn')}", {}),
    tagged=False,
    replaced_by=("role", "policyArn"),
    understood=(
        Concern("policyArn", concerns.changed, "a policy is attached to a role", new=True),
        Concern("role", concerns.changed, "a policy is attached to another role"),
    ),
    creation="",
)

INSTANCE_PROFILE = ResourceType(
    token="aws:iam/instanceProfile:InstanceProfile",
    simulated=_with_path("instance-profile", "AIPA"),
    named_by=("name",),
    replaced_by=("name", "namePrefix", "path"),
    seconds=2,
    creation="",
)
