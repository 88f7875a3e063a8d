"""`trn logs --since`: pods that are gone, and those that are there."""

import json
from datetime import timedelta

import pytest
from recorded_scenes import now, snapshot
from training_jobs import job

from trainium_eks.aws.sessions import AwsError
from trainium_eks.client import kept_logs
from trainium_eks.client.kept_logs import node_of
from trainium_eks.jobs.objects import forms, volcano_job
from trainium_eks.jobs.watch.cloudwatch_logs import CloudWatchLogs
from trainium_eks.jobs.watch.log_lines import LogLine, pod_names

GROUP = "/trainium-eks/dev/containers"
NODE_0, NODE_1 = "alpha-trainer-0-0", "alpha-trainer-1-0"
GONE = {
    NODE_0: [(1, "launcher"), (2, "[default0]:rank 0"), (4, "[default1]:rank 1"), (9, "[default0]:dies")],
    NODE_1: [(3, "[default0]:rank 2"), (5, "[default1]:rank 3")],
    "alpha-b-trainer-0-0": [(6, "of another job")],
}
"""Of each pod that is gone: seconds after the job's creation, and lines."""


@pytest.fixture
def api(api, scene):
    """The pods are gone."""
    api.objects["Pod"] = []
    created = now(scene) - timedelta(minutes=2)
    api.objects["Job"][0]["metadata"]["creationTimestamp"] = f"{created:%Y-%m-%dT%H:%M:%SZ}"
    return api


@pytest.fixture
def keep(monkeypatch, scene):
    """Keeps what a pod wrote in place of CloudWatch, which test_cloudwatch_logs.py has."""
    begun, kept = (now(scene) - timedelta(minutes=2)).replace(microsecond=0), []

    def keep(pod, lines):
        for second, text in lines:
            at = begun + timedelta(seconds=second)
            kept.append((at, pod, LogLine(f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z", text)))

    def read(group, prefix, since):
        assert (group._region, group._group) == ("us-west-2", GROUP)
        ordered = sorted(kept, key=lambda each: each[0])
        return ((pod, line) for at, pod, line in ordered if f"training/{pod}/".startswith(prefix) and at >= since)

    monkeypatch.setattr(CloudWatchLogs, "lines", read)
    return keep


@pytest.fixture
def call(call, tmp_path):
    """The team's seat at a stack that keeps logs."""
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "logGroup": GROUP}))
    return call


@pytest.fixture
def kept_log(keep):
    """All that the pods wrote is kept."""
    for pod, lines in GONE.items():
        keep(pod, lines)


ALL = [
    "node 0 | launcher",
    "node 0 | [default0]:rank 0",
    "node 1 | [default0]:rank 2",
    "node 0 | [default1]:rank 1",
    "node 1 | [default1]:rank 3",
    "node 0 | [default0]:dies",
]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ([], ["launcher", "[default0]:rank 0", "[default0]:dies"]),
        (["--rank", "3"], ["[default1]:rank 3"]),
        (["--node", "1"], ["[default0]:rank 2", "[default1]:rank 3"]),
        (["--all"], ALL),
        (["--all", "--tail", "1"], ["node 1 | [default1]:rank 3", "node 0 | [default0]:dies"]),
    ],
)
def test_kept_log_is_selected_by_rank_and_node(kept_log, call, api, options, lines):
    expected = (0, "".join(f"{line}\n" for line in lines))
    assert call("logs", "alpha", "--since", "2h", *options) == expected
    api.objects["Job"] = []  # a job that was removed is read by its name
    if "--rank" not in options:
        assert call("logs", "alpha", "--since", "24h", *options) == expected


def test_unknown_facts_of_a_removed_job_are_reported(kept_log, call, api):
    api.objects["Job"] = []
    call.ends(2, "logs alpha", "What a removed job wrote: ", "trn logs alpha --since 24h")
    ranks = "--rank 3: alpha was removed, and how many ranks its nodes had; --node N shows a node"
    call.ends(2, "logs alpha --since 2h --rank 3", ranks)
    call.ends(2, "logs alfa --since 2h", "has no job 'alfa'", "nothing that it wrote since 20")


def test_since_limits_the_kept_log_to_this_jobs_newer_lines(kept_log, call, scene, api):
    since = now(scene) - timedelta(minutes=2) + timedelta(seconds=5)
    expected = (0, "node 1 | [default1]:rank 3\nnode 0 | [default0]:dies\n")
    assert call("logs", "alpha", "--all", "--since", f"{since:%Y-%m-%dT%H:%M:%SZ}") == expected
    assert call("logs", "alpha", "--all", "--since", "115s") == expected
    call.ends(1, "logs alpha --since 10s", "alpha has no log yet")
    created = now(scene) - timedelta(minutes=2) + timedelta(seconds=4)
    api.objects["Job"][0]["metadata"]["creationTimestamp"] = f"{created:%Y-%m-%dT%H:%M:%SZ}"
    assert call("logs", "alpha", "--since", "2h", "--rank", "2")[0] == 1
    assert call("logs", "alpha", "--since", "2h", "--rank", "1") == (0, "[default1]:rank 1\n")


def test_ended_job_offers_its_kept_log(kept_log, call, api, scene):
    at = f"{now(scene):%Y-%m-%dT%H:%M:%SZ}"
    api.objects["Job"][0]["status"]["state"] = {"phase": "Failed", "lastTransitionTime": at}
    created = api.objects["Job"][0]["metadata"]["creationTimestamp"]
    kept = "alpha is failed: the pods are gone; what was written since its beginning is kept: "
    call.ends(1, "logs alpha", kept, f"trn logs alpha --since {created}")
    code, out = call("logs", "alpha", "--since", created)
    assert (code, out.splitlines()[-1]) == (0, "[default0]:dies")


# --- Pods that are there ----------------------------------------------------------------------------------------------


@pytest.fixture
def restarted(kept_log, api, scene):
    """The gang has begun anew: pods of the same names, whose lines the API server has."""
    begun = now(scene) - timedelta(minutes=1)
    for number, name in enumerate((NODE_0, NODE_1)):
        pod = next(pod for pod in snapshot("queue_full")["Pod"] if pod["metadata"]["name"] == name)
        pod["metadata"]["creationTimestamp"] = f"{begun:%Y-%m-%dT%H:%M:%SZ}"
        api.objects["Pod"].append(pod)
        line = f"{begun:%Y-%m-%dT%H:%M:%S}.{number}5Z [default0]:resumed"
        api.logs[name] = [line]


def test_log_has_lines_before_and_after_a_restart(restarted, call, monkeypatch):
    code, out = call("logs", "alpha", "--since", "2h", "--all")
    assert (code, out.splitlines()) == (0, [*ALL, "node 0 | [default0]:resumed", "node 1 | [default0]:resumed"])
    code, out = call("logs", "alpha", "--since", "2h", "--tail", "2")
    assert (code, out.splitlines()) == (0, ["[default0]:dies", "[default0]:resumed"])
    # Where the pods are older, nothing else is asked.
    monkeypatch.setattr(kept_logs, "_kept", lambda *_: pytest.fail("asked"))
    call.ends(0, "logs alpha --since 30s")


def test_lines_of_both_sources_are_shown_once(keep, restarted, api, call):
    """CloudWatch has what a pod wrote while it still runs, with times to the millisecond."""
    day, _, _ = api.logs[NODE_0][0].partition(".")
    api.logs[NODE_0] = [f"{day}.000000009Z [default0]:resumed", f"{day}.7Z [default0]:goes on"]
    keep(NODE_0, [(60, "[default0]:resumed"), (60.7, "[default0]:goes on")])
    code, out = call("logs", "alpha", "--since", "2h")
    assert (code, out.splitlines()[-3:]) == (0, ["[default0]:dies", "[default0]:resumed", "[default0]:goes on"])
    assert [out.count(each) for each in ("resumed", "goes on")] == [1, 1]


def test_unreadable_kept_log_does_not_hide_the_live_log(restarted, api, call, monkeypatch):
    def refuse(*_):
        raise AwsError("cannot read the log group")
        yield

    monkeypatch.setattr(kept_logs, "_kept", refuse)
    assert call("logs", "alpha", "--since", "2h") == (0, "[default0]:resumed\ncannot read the log group\n")
    api.objects["Pod"] = []
    assert call("logs", "alpha", "--since", "2h") == (1, "cannot read the log group\n")


def test_pod_name_contains_its_job_and_node():
    for pod, node in {"bert-trainer-3-0": 3, "bert-trainer-12": 12, "bert-worker-2": 2, "bert-x7k2f": 0}.items():
        assert node_of("bert", pod) == node
    for pod in ("bert-large-trainer-0-0", "bert-large-x7k2f", "bert", "albert-trainer-0-0"):
        assert node_of("bert", pod) is None
    # Those that controllers give.
    for manifest, nodes in ((volcano_job.manifest(job(nodes=500)), 500), (*forms.objects(job(form="pytorchjob")), 2)):
        assert [node_of("bert-x7k2f", pod) for pod in pod_names(manifest, "gang")] == [*range(nodes)]
    assert node_of("bert", "bert-node-0-7-x7k2f") == 7
