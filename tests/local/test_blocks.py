"""From the purchase of a Capacity Block in a simulated market to its end, and on in the next: docs/capacity.md in
minutes. No pod is told the time: the margin before the end is of days, so that an end in some days is near."""

import json
import re
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import ec2_market
import pytest
import yaml
from local_project import REAL_VOLCANO, ROOT, LocalProject
from waiting import until

from trainium_eks.aws import sessions
from trainium_eks.aws.account import Account
from trainium_eks.client.capacity import Stack
from trainium_eks.client.capacity_purchase import BlockOptions, complete, prepare_block, prepare_extension
from trainium_eks.model.validation.formats import utc_text

pytestmark = pytest.mark.slow

NODES = ("nodes", "-l", "node.kubernetes.io/instance-type=trn1.32xlarge")
BEGAN = datetime.now(UTC)
BOUGHT = (BEGAN - timedelta(days=1)).replace(hour=9, minute=0, second=0, microsecond=0)
SOON_SECONDS = 240
"""From the submission to the extended end's margin: an `up`, and a minute until running pods see a ConfigMap."""
REST = {"name": "rest", "instanceType": "trn1n.32xlarge", "maxSize": 1}


@contextmanager
def ec2():
    """The account of a buyer, yesterday."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ec2_market, "NOW", BOUGHT)
        patch.setenv("SOURCE_DATE_EPOCH", str(int(BOUGHT.timestamp())))
        market, connect = ec2_market.Market(), sessions.connect
        patch.setattr(sessions, "connect", lambda *place, **config: connect(*place, market.session(), **config))
        yield Account("us-west-2", market.session())


def group(project):
    """The block's group in the stack's file."""
    return yaml.safe_load((project.path / "Pulumi.local.yaml").read_text())["config"]["trainium-eks:nodeGroups"][1]


@pytest.fixture(scope="module")
def project(binaries, volcano_programs, tmp_path_factory):
    clock = str(int(time.time()))  # that of pods, too
    project = LocalProject.of_the_repository(
        tmp_path_factory.mktemp("blocks"), **{**REAL_VOLCANO, "SOURCE_DATE_EPOCH": clock}
    )
    (project.path / "workloads").symlink_to(ROOT / "workloads")
    project.configure("local", nodeGroups=[REST])
    with ec2() as account:
        block = BlockOptions(f"cb-{BOUGHT:%m%d}-72-0", "blocks", "trn1.32xlarge", 8, 3)
        bought = prepare_block(block, Stack.find("local", project.path), account)
        complete(bought, bought.offer.usd, print)
        with project.up("local", volcano=True):
            yield project, account


def test_gang_runs_from_purchase_to_block_end_and_continues_in_next_block(project):
    project, account = project
    bought = group(project)["capacity"]["ends"]
    assert bought == utc_text(BOUGHT.replace(hour=11, minute=30) + timedelta(days=3))
    assert len(project.get("local", *NODES)) == 8, "the group was made within its block"
    assert project.outputs("local")["nodeGroups"][1]["ends"] == bought
    # With this margin the bought end is another block's; the later one comes soon after the extension.
    ends = utc_text(datetime.fromisoformat(bought) + timedelta(days=1))
    left = datetime.fromisoformat(ends) - datetime.now(UTC) - timedelta(seconds=SOON_SECONDS)
    asked = ("--module", "trainium_workloads.gradient_sum", "--name", "long", "--detach")
    asked += ("--group", "blocks", "--nodes", "8")
    asked += ("--image", "local/python", "--env", f"TRN_CAPACITY_MARGIN={left.total_seconds()}")
    submitted = project.trn("train", *asked, "--", "--steps", "100000", "--step-seconds", "0.1")
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr

    def step():
        job = json.loads(project.trn("status", "long", "--json").stdout)
        return (job["progress"] or {}).get("step", 0), job

    until(lambda: step()[0], "it runs in the first block")
    longer = prepare_extension("blocks", 1, Stack.find("local", project.path), account)
    complete(longer, longer.offer.usd, print)
    assert group(project)["capacity"]["ends"] == ends
    up = project.trn("local", "up")
    assert up.returncode == 0, up.stdout + up.stderr
    assert step()[1]["capacityBlockEnds"] == datetime.fromisoformat(ends).isoformat()
    for node in project.get("local", *NODES):  # the drain begins
        project.kubectl("local", "cordon", node["metadata"]["name"])
    log = until(lambda: stopped(project), "its file has the extension, and it stops before the new end")
    saved = int(re.search(rf"stops after step (\d+) \(the Capacity Block ends at {ends}\)", log)[1])
    until(lambda: step()[1]["pending"], "it waits for the next block")
    after = group(project)
    after["capacity"]["ends"] = utc_text(datetime.fromisoformat(ends) + timedelta(days=2))
    project.configure("local", nodeGroups=[REST, after])
    for words in (("scale", "blocks", "0"), ("local", "up"), ("scale", "blocks", "8")):
        done = project.trn(*words)
        assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: step()[0] > saved, "it goes on from its checkpoint")
    assert step()[1]["capacityBlockEnds"] == datetime.fromisoformat(after["capacity"]["ends"]).isoformat()


def stopped(project):
    log = project.trn("logs", "long", "--since", "1h").stdout
    return log if "the Capacity Block ends at" in log else ""
