"""The rules of `trn plan` as policies: `pulumi preview --policy-pack policy` (docs/plan.md).

Every rule of ``trainium_eks.plan.rules`` is one policy; there is no other list.
"""

import os
import sys
from pathlib import Path

# The rules are read from the checkout that the pack is part of.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pulumi
from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    Severity,
    StackValidationArgs,
    StackValidationPolicy,
)

from trainium_eks.plan.policy_pack import NotSeenError, Pack
from trainium_eks.plan.rules import RULES, Rule

ENFORCED = {"high": EnforcementLevel.MANDATORY, "medium": EnforcementLevel.MANDATORY, "low": EnforcementLevel.ADVISORY}
"""How a rule of each severity is enforced, unless the policy's own config says otherwise."""

pack = Pack(
    project=os.environ.get("PULUMI_PROJECT", ""),
    stack=os.environ.get("PULUMI_STACK", ""),
    config=pulumi.runtime.get_config_env(),
    preview=os.environ.get("PULUMI_DRY_RUN") == "true",
)


def remember(args: ResourceValidationArgs, _report: ReportViolation) -> None:
    """Keep a resource's inputs for the stack's policies."""
    pack.remember(args.urn, args.props)


def stale_waivers(args: StackValidationArgs, report: ReportViolation) -> None:
    """Report waivers that have expired or excuse nothing. Log the rules that the pack cannot check: the CLI shows a
    policy that is not applicable like a policy that passes."""
    if line := pack.not_judged(args.resources):
        pulumi.log.info(line)
    for line in pack.stale_waivers(args.resources):
        report(line)


def policy(rule: Rule) -> Policy:
    """Return a rule as a policy."""

    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        try:
            for finding in pack.broken(rule, args.resources):
                report(finding.text, finding.subject)
        except NotSeenError as reason:
            args.not_applicable(str(reason))

    return StackValidationPolicy(
        name=rule.id.lower(),
        description=f"{rule.id}: {rule.title}. {rule.explanation}",
        validate=validate,
        enforcement_level=ENFORCED[rule.severity],
        severity=Severity(rule.severity),
        display_name=rule.title,
    )


PolicyPack(
    "trainium-eks",
    [
        ResourceValidationPolicy(
            "inputs", "Remembers what each resource was asked for; reports nothing", remember, EnforcementLevel.ADVISORY
        ),
        *map(policy, RULES),
        StackValidationPolicy("waivers", "Remove or renew stale waivers", stale_waivers, EnforcementLevel.MANDATORY),
    ],
)
