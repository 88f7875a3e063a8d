"""Generator of ``docs/rules.md`` from the rules: ``python -m trainium_eks.plan.rules > docs/rules.md``."""

import sys

from trainium_eks.plan.rules import NOT_JUDGED, RULES, STANDING_WAIVERS

HEADER = """# Rules

The rules that every environment must keep. `trn plan` checks the recorded program and shows which rules fail, are
waived, pass or do not apply; if one fails, the plan exits with 1. An environment that breaks a rule on purpose waives
it in its config, with a reason and a last day:

```yaml
config:
  trainium-eks:waivers:
    R06: {reason: torn down every night, expires: 2027-03-31}
```

A stale waiver fails the plan, too: an expired waiver, a waiver that ends more than a year ahead, or a waiver of a rule
that passes or does not apply. `docs/plan.md` says how the same rules run as a policy pack of Pulumi.

A rule that finds no resource to judge does not apply; it does not pass. A rule that is independent of a judge of the
config makes the same demand of all registered resources: of foreign programs and of resources made beside the
components, too.

*File* is the module in `trainium_eks/plan/rules`; the docstring of its check is the text here (written by `make docs`).
"""

PACK = """The [policy pack](plan.md) judges the same rules from the engine's data. Where the data is not enough, it
reports neither a fault nor a pass: the policy is not applicable, and one line of the output names the rules that were
not judged and why. `trn plan` judges them. Whether a waiver of such a rule is stale is not judged, either: in a first
preview the pack passes a waiver that fails `trn plan`."""


def page() -> str:
    """Return the page as Markdown."""
    lines = [HEADER, "| Rule | Severity | What is wanted, and why | Source | File |", "| --- | --- | --- | --- | --- |"]
    for rule in RULES:
        place = f'<a id="{rule.id.lower()}"></a>{rule.id}'
        file = rule.check.__module__.rpartition(".")[2]
        lines.append(
            f"| {place} | {rule.severity} | **{rule.title}.** {rule.explanation} | {rule.source} | `{file}.py` |"
        )
    lines += ["", "## Waived everywhere", ""]
    lines += [f"- **{id_}**: {reason}" for id_, reason in STANDING_WAIVERS.items()]
    lines += ["", "## Not judged from a plan", ""]
    lines += [f"- **{id_}**: {reason}" for id_, reason in NOT_JUDGED.items()]
    lines += ["", "## What a policy pack cannot see", "", PACK, ""]
    lines += [f"- **{rule.id}**: {rule.beyond_pack}." for rule in RULES if rule.beyond_pack]
    ids = ", ".join(rule.id for rule in RULES if rule.follows_ids)
    lines += [f"- **{ids}** follow ids and names from resource to resource: while a preview does not know some, these "]
    lines[-1] += "rules are judged in the update."
    ids = ", ".join(rule.id for rule in RULES if rule.reads_computed)
    lines += [
        f"- **{ids}** read ARNs and policies: what a first preview does not know of them is judged in the update."
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
