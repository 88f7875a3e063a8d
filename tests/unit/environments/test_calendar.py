"""The next 400 days: what the date alone makes each environment's plan say, with nothing else changed."""

import datetime
import json
import re

import pytest
import yaml
from golden import ROOT
from hand_built import Builder

from trainium_eks.model.config.stack_config import load, validate
from trainium_eks.model.finding import Status
from trainium_eks.model.sizing import bill
from trainium_eks.plan import waivers
from trainium_eks.plan.rules import RULES

FIRST = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
"""The day of all other tests (conftest.py)."""

R05 = next(rule for rule in RULES if rule.id == "R05")

TABLE = """\
2026-11-28  note: standard support ends on 2027-03-27; this release certifies no later version yet
2026-12-30  warn cluster.kubernetes_version: nodes start from the pinned AMI release 1.35.8-20260930, N days old
2027-02-26  acknowledge R05 cluster.kubernetes_version: its standard support ends on 2027-03-27, in N days: EKS then \
upgrades it by itself, under running jobs
2027-02-26  rule R05: version is "1.35", whose standard support ends 2027-03-27, wanted N days of it or more
2027-03-28  acknowledge R05 cluster.kubernetes_version: standard support ended on 2027-03-27 and extended support ends \
on 2028-03-27; until then the cluster costs 0.60 USD an hour instead of 0.10
2027-03-28  rule R05: version is "1.35", whose standard support ended 2027-03-27, wanted N days of it or more
2027-03-28  note: Kubernetes 1.35 has been in extended support since 2027-03-27
"""
EXPIRED = "2027-11-01  waiver {}: the waiver expired on 2027-10-31\n"
"""For each waiver of the environment's file, too."""


def dated_messages(config, graph):
    """Yield the messages of a plan that depend on the day."""
    for each in validate(config):
        yield f"{each.severity} {each.rule}".strip() + f" {each.path}: {each.reason}"
    yield from (f"rule R05: {each.text}" for each in R05.check(graph) if each.status is Status.FAIL)
    yield from (f"waiver {each.fault.partition(';')[0]}" for each in waivers.of(graph).values() if each.fault)
    yield f"note: {bill.control_plane(config.cluster.kubernetes_version, config.cluster.support_type).note}"


def calendar(data, monkeypatch):
    """Return a line for each new message: its day and its text."""
    config = load({key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()})
    builder = Builder()
    builder.add("aws:eks/cluster:Cluster", "cluster", version=config.cluster.kubernetes_version)
    graph = builder.graph(data)
    known = {}
    for day in (FIRST + datetime.timedelta(days) for days in range(401)):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(day.timestamp())))
        for text in dated_messages(config, graph):
            known.setdefault(re.sub(r"\b\d+(?= days)", "N", text), f"{day:%Y-%m-%d}")
    return "".join(f"{day}  {text}\n" for text, day in known.items() if day > f"{FIRST:%Y-%m-%d}")


@pytest.mark.parametrize(
    "stack", ["dev", "prod", *(pytest.param(each, marks=pytest.mark.slow) for each in ("gpu", "acceptance", "local"))]
)
def test_time_alone_adds_only_listed_warnings_in_400_days(stack, monkeypatch):
    data = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text())["config"]
    data = {key.partition(":")[2]: value for key, value in data.items() if key.startswith("trainium-eks:")}
    found, wanted = calendar(data, monkeypatch), TABLE + "".join(map(EXPIRED.format, data["waivers"]))
    if found != wanted:
        pytest.fail(f"What the plan of {stack} begins to say:\n{found}\nand not:\n{wanted}", pytrace=False)
