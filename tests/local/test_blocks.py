"""A gang that a Capacity Block's end stops, and that goes on in the next block from its checkpoint. No pod is told the
time: the margin before the end is a day and a part, so that an end tomorrow is near."""

import json
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from local_project import REAL_VOLCANO, repository_cloud
from waiting import until

from trainium_eks.model.validation.formats import utc_text

pytestmark = pytest.mark.slow

NODES = ("nodes", "-l", "node.kubernetes.io/instance-type=trn1.32xlarge")
BEGAN = datetime.now(UTC)
FIRST, NEXT = (utc_text(BEGAN + timedelta(days=days)) for days in (1, 3))


def groups(ends):
    times = {"starts": utc_text(BEGAN - timedelta(hours=1)), "ends": ends, "nodes": 2}
    block = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "zoneId": "usw2-az4", **times}
    own = {"name": "blocks", "instanceType": "trn1.32xlarge", "maxSize": 2, "ignoreDesiredSize": True}
    return [{**own, "capacity": block}]


@pytest.fixture(scope="module")
def project(binaries, volcano_programs, tmp_path_factory):
    clock = {"SOURCE_DATE_EPOCH": str(int(time.time()))}  # that of pods, too
    with repository_cloud(
        tmp_path_factory.mktemp("blocks"), environment={**REAL_VOLCANO, **clock}, nodeGroups=groups(FIRST)
    ) as project:
        yield project


def test_gang_is_stopped_by_its_blocks_end_and_goes_on_in_the_next(project):
    assert len(project.get("local", *NODES)) == 2, "the group was made within its block"
    assert project.outputs("local")["nodeGroups"][0]["ends"] == FIRST
    left = datetime.fromisoformat(FIRST) - datetime.now(UTC) - timedelta(seconds=60)
    asked = ("--module", "trainium_workloads.gradient_sum", "--nodes", "2", "--name", "long", "--detach")
    asked += ("--image", "local/python", "--env", f"TRN_CAPACITY_MARGIN={left.total_seconds()}")
    submitted = project.trn("train", *asked, "--", "--steps", "100000", "--step-seconds", "0.1")
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr

    def step():
        job = json.loads(project.trn("status", "long", "--json").stdout)
        return (job["progress"] or {}).get("step", 0), job

    until(lambda: step()[0], "it runs in the first block")
    assert step()[1]["capacityBlockEnds"] == datetime.fromisoformat(FIRST).isoformat()
    for node in project.get("local", *NODES):  # the drain begins
        project.kubectl("local", "cordon", node["metadata"]["name"])
    log = until(lambda: stopped(project), "it stops before the end")
    saved = int(re.search(rf"stops after step (\d+) \(the Capacity Block ends at {FIRST}\)", log)[1])
    until(lambda: step()[1]["pending"], "it waits for the next block")
    project.configure("local", nodeGroups=groups(NEXT))
    for words in (("scale", "blocks", "0"), ("local", "up"), ("scale", "blocks", "2")):
        done = project.trn(*words)
        assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: step()[0] > saved, "it goes on from its checkpoint")
    assert step()[1]["capacityBlockEnds"] == datetime.fromisoformat(NEXT).isoformat()


def stopped(project):
    log = project.trn("logs", "long", "--since", "1h").stdout
    return log if "the Capacity Block ends at" in log else ""
