"""Node groups scaled whole or not at all, on a simulated EC2; as a program, the figures of 10,000 trials."""

import itertools
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from cluster_snapshots import NEURON, group, outputs
from golden import ROOT
from outcome import ends
from remembering_api import RememberingApi, take_seat, trn
from simulated_capacity import ANN, BEN, Cloud, KilledError

from trainium_eks.aws import sessions
from trainium_eks.client import scaling, whole_scaling
from trainium_eks.client.cluster_access import StackAccess
from trainium_eks.client.failure import CommandError
from trainium_eks.jobs.objects.identity import JOB_API
from trainium_eks.kube.errors import ClusterError

CHANGES = {"ng1": {}, "pg": {"placementGroup": "pg"}, "whole": {"allOrNothing": True}, "spot": {"capacity": "spot"}}
STACK = outputs(nodeGroups=[group(name, NEURON, 8, None, maxSize=8, **each) for name, each in CHANGES.items()])


def run(cloud, nodes, caller=ANN, placed=False):
    """How the command ends on that cloud, and all that it prints."""
    said, end, caller, cloud.caller = [], "done", cloud.caller, caller
    kept = (sessions.client, scaling.time, scaling.LOOK_SECONDS, whole_scaling.time)
    session = SimpleNamespace(outputs=STACK, api=cloud, is_local=False, source=SimpleNamespace(paths=None))
    sessions.client, scaling.time, scaling.LOOK_SECONDS, whole_scaling.time = cloud.client, cloud.time, 30, cloud.time
    try:
        whole_scaling.scale(session, STACK.node_groups[placed], nodes, said.append)
    except KilledError:
        end = "killed"
    except KeyboardInterrupt:
        end = "interrupted"
    except (CommandError, ClusterError) as error:
        end = "refused"
        said.append(error.text() if isinstance(error, CommandError) else str(error))
    finally:
        sessions.client, scaling.time, scaling.LOOK_SECONDS, whole_scaling.time = kept
        cloud.caller = caller
    return end, "\n".join(said)


# --- trials -----------------------------------------------------------------------------------------------------------

CODES = ("RequestLimitExceeded", "ThrottlingException", "ResourceInUseException", "InternalError", "network", "lost")
NONE = float("inf")


def trial(seed):
    """One made account, one command, what happens to it, and its reruns: how it ends, what is wrong then, the cloud."""
    chance = random.Random(seed)
    before, more, placed = chance.choice((0, 0, 1, 2)), chance.randint(1, 5), chance.random() < 0.5
    nodes = before + more
    room = chance.choice((NONE, NONE, NONE, NONE, more, more - 1, chance.randint(0, 12)))
    limits = {"free": room, "quota": chance.choice((*(NONE,) * 5, nodes, nodes - 1)), "others": chance.choice((0, 2))}
    sick = {"slow": chance.choice((0, 0, 0.1)), "failing": chance.choice((0, 0, 0, 0.1))}
    cloud, guests = Cloud(chance, before=before, **limits, **sick), []
    kind = chance.choice(("none", "kill", "ctrl-c", "error", "guest", "many"))
    for _ in range({"none": 0, "many": 4}.get(kind, 1)):
        way = chance.choice(("kill", "ctrl-c", "error")) if kind == "many" else kind
        fault = chance.choice(CODES) if way == "error" else f"{way} {chance.choice(('before', 'after'))}"
        size = chance.randint(1, 7)
        visit = lambda size=size: guests.append((size, *run(cloud, size, BEN, placed)))  # noqa: E731
        cloud.faults[chance.randint(1, 24)] = visit if way == "guest" else fault
    end, said = run(cloud, nodes, ANN, placed)
    first, reruns = end, 0
    # Who sees that it was killed, that it could not go back, or that a second one did nothing, runs it again.
    while end == "killed" or (
        end != "done" and ("is not as it should be" in said or (reruns and (not said or said.startswith("cannot "))))
    ):
        cloud.killed, reruns = False, reruns + 1
        cloud.faults = cloud.faults if reruns == 1 else {}
        cloud.sleep(chance.choice((0, 60, 1200)))
        end, said = run(cloud, nodes, ANN, placed)
    cloud.sleep(60)  # Auto Scaling ends nodes after a while
    alive, scaled = {each.name for each in cloud.alive}, [size for size, how, _ in guests if how == "done"]
    wanted = nodes if end == "done" else scaled[-1] if scaled else before
    broken = [] if len(alive) == cloud.desired == wanted else [f"{len(alive)} nodes of {cloud.desired}, not {wanted}"]
    broken += ["not all are Ready"] if end == "done" and len(cloud.list()) != nodes else []
    broken += ["a node of before has gone"] if cloud.old - alive and not scaled else []
    broken += [f"{cloud.most} nodes"] if cloud.most > max([nodes, *(size for size, *_ in guests)]) else []
    broken += ["a reservation is left"] if cloud.live and "is not as it should be" not in said else []
    cloud.sleep(scaling.READY_SECONDS + whole_scaling.GIVE_BACK_SECONDS + 3601)
    broken += ["a reservation outlives its end"] if cloud.live else []
    return f"{first}, then {end}" if reruns else end, broken, cloud


def trials(seeds):
    """The number of each end, what is wrong by seed, the number of requests, and their actions."""
    counted, broken, requests, actions = Counter(), {}, 0, set()
    for seed in seeds:
        end, wrong, cloud = trial(seed)
        counted[end], requests, actions = counted[end] + 1, requests + cloud.calls, actions | cloud.asked
        if wrong:
            broken[seed] = wrong
    return counted, broken, requests, actions


def test_nodes_come_all_or_none_in_a_thousand_trials():
    counted, broken, _, actions = trials(range(1000))
    assert broken == {}
    assert {"done", "refused", "interrupted", "killed, then done", "killed, then refused"} <= set(counted)
    # The policy that a refusal shows has these actions, and the tags' own.
    policy = json.loads((ROOT / "trainium_eks/model/policies/whole_scaling.json").read_text())
    listed = (each["Action"] for each in policy["Statement"])
    allowed = {one for each in listed for one in ([each] if isinstance(each, str) else each)}
    assert allowed == actions - {"sts:GetCallerIdentity"} | {"ec2:CreateTags"}


def test_command_that_ends_at_any_request_converges_when_run_again():
    for number, way in itertools.product(range(1, 45), ("kill before", "kill after", "ctrl-c before", "ctrl-c after")):
        cloud = Cloud(random.Random(number), before=2)
        cloud.faults[number] = way
        end, said = run(cloud, 5)
        cloud.sleep(60)
        if end == "interrupted" and "5 of 5 nodes are Ready" not in said:
            assert (len(cloud.alive), cloud.live) == (2, []), (number, way)
        cloud.killed, cloud.faults = False, {}
        assert (run(cloud, 5)[0], len(cloud.alive), cloud.live) == ("done", 5, []), (number, way)


@pytest.mark.slow
def test_nodes_come_all_or_none_in_ten_thousand_trials():
    assert trials(range(1000, 10_000))[1] == {}


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "fault", "words"),
    [
        ({"free": 2}, "", ["did not get all 3 nodes", "has 0 nodes as before", "not enough capacity",
                           "trn capacity --type trn1.32xlarge --nodes 3"]),
        ({"quota": 2}, "", ["InstanceLimitExceeded", "`trn check` names it"]),
        ({}, "UnauthorizedOperation", ["What it takes", '"ec2:CreateCapacityReservation"', "nodegroup/trn-dev/*"]),
        ({"failing": 1.0}, "", ["has 0 nodes as before", "0 of 3 nodes are Ready"]),
        ({"free": 2, "others": 2}, "", ["InsufficientInstanceCapacity"]),
    ],
)  # fmt: skip
def test_refusal_shows_ec2s_answer_and_a_remedy(limits, fault, words):
    cloud = Cloud(random.Random(2), **limits)
    cloud.faults["create_capacity_reservation"] = fault
    end, said = run(cloud, 3)
    cloud.sleep(60)
    assert (end, cloud.alive, cloud.live, [each for each in words if each not in said]) == ("refused", [], [], [])


def test_second_command_is_refused_with_the_first_ones_caller():
    cloud, said = Cloud(random.Random(1)), []
    cloud.faults[15] = lambda: said.extend(run(cloud, *each)[1] for each in ((3, BEN), (5, ANN)))
    assert run(cloud, 3)[0] == "done"
    words = (f"3 nodes by {ANN}, since 2027-01-11", "trn scale ng1 3 --all-or-nothing")
    for text, own in zip(said, words, strict=True):
        assert own in text
        assert "aws ec2 cancel-capacity-reservation --region us-west-2 --capacity-reservation-id cr-0" in text
    cloud.desired, cloud.launches_at = 5, NONE
    assert "trn scale ng1 3" in run(cloud, 6)[1]


def test_first_of_two_simultaneous_commands_continues():
    found = []
    for seed in range(30):
        cloud = Cloud(random.Random(seed))
        visit = lambda cloud=cloud: found.append((cloud.live[0].listed > cloud.now, *run(cloud, 5, BEN)))  # noqa: E731
        cloud.faults["after create_capacity_reservation"] = visit
        run(cloud, 3)
    hidden = [(end, said) for is_hidden, end, said in found if is_hidden]
    assert [said for end, said in hidden if end != "refused" or f"3 nodes by {ANN}" not in said] == []
    assert len(hidden) > 5


def test_sigterm_gives_the_nodes_back():
    cloud, handler = Cloud(random.Random(1)), signal.getsignal(signal.SIGTERM)
    cloud.faults[15] = lambda: os.kill(os.getpid(), signal.SIGTERM)
    assert run(cloud, 3)[0] == "interrupted"
    cloud.sleep(60)
    assert (cloud.alive, cloud.live, signal.getsignal(signal.SIGTERM)) == ([], [], handler)


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def cloud(monkeypatch):
    made, api = Cloud(random.Random(1)), RememberingApi(JOB_API)
    others = api.list
    api.list = lambda version, kind, **rest: made.list() if kind == "Node" else others(version, kind, **rest)
    monkeypatch.setattr(sessions, "client", made.client)
    for module in (scaling, whole_scaling):
        monkeypatch.setattr(module, "time", made.time)
    take_seat(monkeypatch, StackAccess("dev", STACK), api)
    made.jobs = api.objects
    return made


def test_scale_reserves_by_option_or_by_the_groups_default(cloud):
    ends(0, trn("scale ng1 2 --all-or-nothing"), "2 trn1.32xlarge are reserved", "ng1 has 2 nodes.")
    ends(0, trn("scale whole 3"), "1 trn1.32xlarge are reserved")
    ends(0, trn("scale whole 4 --no-all-or-nothing --no-wait"))
    cloud.sleep(1000)
    ends(0, trn("scale ng1 5"))
    assert [each.state for each in cloud.reservations.values()] == ["cancelled"] * 2
    ends(2, trn("scale whole 6 --no-wait"), "all nodes or none is known only when they are Ready")
    ends(2, trn("scale spot 6 --all-or-nothing"), "that of spot is spot")
    ends(0, trn("scale whole 1 --no-wait"))


def test_train_submits_when_the_gang_is_whole(cloud):
    cloud.free = 1
    ends(1, trn("train --module m --group whole --nodes 2 --detach"), "whole did not get all 2 nodes")
    ends(2, trn("train --module m --group spot --all-or-nothing"), "that of spot is spot")
    ends(2, trn("train --on sagemaker --module m --all-or-nothing"))
    assert cloud.jobs == []
    cloud.faults["create_capacity_reservation"] = "UnauthorizedOperation"
    ends(0, trn("train --module m --group whole --nodes 2 --detach"), "may run `trn scale whole 2 --all-or-nothing`")
    cloud.free, cloud.faults = 2, {}
    ends(0, trn("train --module m --nodes 2 --detach --all-or-nothing"), "2 of 2 nodes are Ready")
    assert len(cloud.jobs) == 2


if __name__ == "__main__":
    began = time.process_time()
    found = trials(range(int(sys.argv[1]) if sys.argv[1:] else 10_000))
    rows = (f"{number:6} {end}" for end, number in found[0].most_common())
    seconds = f"{found[2]} requests to AWS in {time.process_time() - began:.1f} s of CPU"
    sys.stdout.write("\n".join((*rows, seconds, f"wrong: {found[1] or 'none'}", "")))
