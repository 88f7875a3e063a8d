"""The document of every command of a researcher with --json: its exit code and its keys. Tools read them."""

import json

import pytest
from cluster_snapshots import NEURON, group, outputs
from remembering_api import NOW, RememberingApi, take_seat
from remembering_api import trn as typed

from trainium_eks.aws.sessions import Aws
from trainium_eks.client.cluster_access import StackAccess
from trainium_eks.jobs.objects.identity import JOB_API

STACK = outputs(nodeGroups=[group("ng1", NEURON, 8, 2)], imageRepository="r/train")
JOB = "job kind form namespace queue instanceType nodes worldSize image backend launcher output cacheKey"
STATUS = "job pending trouble nodes progress restarts exits failedRank firstError lastLines measured"
STATUS += " capacityBlockEnds devices"

WATCHED = {
    "jobs": (0, "namespace jobs"),
    "jobs --all-namespaces": (0, "namespace jobs"),
    "status": (0, "cluster hourlyUsd unknownPrices otherHourlyUsd groups"),
    "status alpha": (0, STATUS),
    "wait beta --timeout 0s": (1, "problems detail"),
    "cancel alpha": (0, "jobs"),
    "cancel gamma": (2, "problems detail"),
    "logs alpha --tail 1": (0, "time pod node localRank line"),
}
SUBMITTED = {
    "train --module m": (0, f"{JOB} checkpointSeconds state"),
    "train --module m --wait": (0, f"{JOB} checkpointSeconds state"),
    "train --module m --dry-run": (0, "job torchx"),
    "train --module m --nodes 9": (2, "problems detail"),
    "scale ng1 2": (0, "group nodes before"),
    "secret": (0, "namespace secret state"),
    "secret --delete": (0, "namespace secret state"),
    "stage s3://b/x --to x --no-follow": (0, "namespace job state"),
    "serve one --no-wait": (0, "name namespace state url model image replicas port"),
    "predict one in.csv --to out.csv --no-follow": (0, "namespace job output state"),
    "predict one in.csv --to out.csv": (0, "namespace job output state message rows"),
}


def check(command, code, out, expected):
    found = json.loads(out)
    # Logs are a document a line.
    version = [] if command.startswith("logs") else ["schemaVersion"]
    assert (code, list(found)) == (expected[0], [*version, *expected[1].split()])
    assert found.get("schemaVersion", 1) == 1


@pytest.mark.parametrize("command", WATCHED)
def test_watching_command_has_its_documented_json(command, call, api):
    api.logs["alpha-trainer-0-0"] = ["2026-11-22T05:33:01Z [default0]:begins"]
    code, out = call(*command.split(), "--json")
    check(command, code, out, WATCHED[command])


@pytest.mark.parametrize("command", SUBMITTED)
def test_submitting_command_has_its_documented_json(command, monkeypatch):
    api = RememberingApi(JOB_API)
    api.statuses["Job"] = {"state": {"phase": "Completed", "lastTransitionTime": NOW}}
    if command.startswith("predict"):
        api.statuses["Job"] = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": NOW}]}
    monkeypatch.setattr(Aws, "scale", lambda *_: None)
    take_seat(monkeypatch, StackAccess("dev", STACK), api)
    result = typed(f"{command} --json", "hf_Word")
    check(command, result.exit_code, result.stdout, SUBMITTED[command])
    assert "hf_Word" not in result.output
