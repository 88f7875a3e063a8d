"""Golden plan pages: the page of the program built by hand, and the lines that each variant changes of it.

``make golden`` writes ``unit/cli/environment/plan_pages.md`` anew: read the difference as people read a plan.
"""

import difflib
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from hand_built import changed, environment, waiting, without
from review_cases import TODAY

from trainium_eks.cli.shared import plan_page, plan_report
from trainium_eks.model.finding import Finding, Status
from trainium_eks.plan import rules
from trainium_eks.plan.graph import Resource
from trainium_eks.plan.rules import RuleResult

FILE = Path(__file__).parent / "unit" / "cli" / "environment" / "plan_pages.md"
THING = Resource("urn::thing", "acme:index:Thing", "thing")
OUTPUTS = {"names": ["a", "b"], "groups": [{"name": "g", "size": 1}], "empty": "", "none": None, "z": "x" * 300}
POOL = SimpleNamespace(pool="cpu", minimum=0, maximum=4, instance_type="m7i.xlarge", by="Karpenter")


BLOCKS = (
    ("later", "trn1.32xlarge", "2027-01-11T11:30:00Z", "2027-01-14T11:30:00Z"),
    ("now", "trn2.48xlarge", "2026-11-18T11:30:00Z", "2026-11-28T11:30:00Z"),
    ("over", "trn2u.48xlarge", "2026-11-01T11:30:00Z", "2026-11-02T11:30:00Z"),
)


def dated(block):
    name, type_, starts, ends = block
    times = {"starts": starts, "ends": ends, "nodes": 4}
    capacity = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "zoneId": "usw2-az4", **times}
    return {"name": name, "instanceType": type_, "capacity": capacity}


def verdict(id_, status, *messages, severity="high", reason="", of=Status.FAIL):
    findings = tuple(Finding(of, f"urn::{index}", message) for index, message in enumerate(messages))
    return RuleResult(id_, f"Title of {id_}", severity, "", status, reason, findings)


VERDICTS = (verdict("R01", "pass"), verdict("R02", "n/a"))
"""What the rules say, most of which the program built by hand breaks."""
BROKEN = (
    verdict("R05", "waived", "x", reason="because of this"),
    verdict("R03", "fail", *map(str, range(20)), severity="low"),
    verdict("R04", "fail", "is high"),
    verdict("R06", "unseen", "known later", of=Status.NOT_CHECKED),
)


def page(graph=None, verdicts=VERDICTS, **parts):
    with mock.patch.object(rules, "judge", return_value=verdicts):
        return plan_page.page(replace(plan_report.make(graph or environment()), **parts))


def against(after, before=None):
    with mock.patch.object(rules, "judge", return_value=VERDICTS):
        return plan_page.page(plan_report.compare_with(plan_report.make(after), "main", before or environment()))


def pages():
    """Title to page."""
    made = environment()
    unpriced = changed(made, "trn1-template", instanceType="trn9.48xlarge")
    return {
        "a sound program": page(),
        "warnings, placeholders and outputs": page(
            replace(made, warnings=("look out",), placeholders=("aws:x",), outputs=OUTPUTS)
        ),
        "what is not simulated": page(replace(made, resources=(*made.resources, THING), unjudged=(THING.type,))),
        "no price, and Spot": page(changed(unpriced, "trn1", capacityType="SPOT")),
        "no faults": page(environment({"training": {"failuresPerNodeYear": 0}})),
        "no accelerators": page(without(made, "trn1")),
        "autoscaling": page(autoscaling=SimpleNamespace(pools=[POOL], limits=["none of a gang"])),
        "Capacity Blocks": page(environment({"nodeGroups": [*map(dated, BLOCKS)]})),
        "rules that fail, are waived and are not judged": page(verdicts=VERDICTS + BROKEN),
        "an edge that costs time": page(waiting(made, "lustre", "control-plane")),
        "no change": against(made),
        "a loss": against(changed(changed(made, "subnet", cidrBlock="10.0.64.0/18"), "sts", policy="{}")),
        "a larger group": against(changed(made, "trn1", scalingConfig={"minSize": 0, "desiredSize": 3, "maxSize": 4})),
        "a new stack": against(made, replace(made, resources=())),
    }


def text():
    """Return the golden file's content: the first plan and the first comparison whole, of the others what differs."""
    parts, wholes = [], {}
    for title, made in pages().items():
        lines, kind = [line.rstrip() for line in made.splitlines()], "**Changes since" in made
        if kind in wholes:
            differences = difflib.ndiff(wholes[kind], lines)
            lines = [line.rstrip() for line in differences if line[:2] in ("+ ", "- ")]
        wholes.setdefault(kind, lines)
        parts += [f"# {title}", "", *lines, ""]
    return "\n".join(parts)


def main():
    """Write the golden pages."""
    os.environ["SOURCE_DATE_EPOCH"] = TODAY
    made = text()
    sys.stdout.write(f"plan pages: {'no changes' if FILE.exists() and FILE.read_text() == made else 'written anew'}\n")
    FILE.write_text(made)


if __name__ == "__main__":
    main()
