"""Gangs of 2, 4 and 8 nodes on two UltraServers, placed by a real Volcano; their runtime's variables are the nodes'."""

import json
from collections import Counter

import pytest
from local_project import repository_cloud
from waiting import until

pytestmark = pytest.mark.slow

ZONES = ["aps2-az1", "aps2-az2", "aps2-az3"]
BLOCK = {"type": "capacity-block", "id": "cr-0123456789abcdef0", "zoneId": ZONES[0]}
SIZES = dict.fromkeys(("minSize", "maxSize", "desiredSize"), 8)
GROUP = {"name": "us", "instanceType": "trn2u.48xlarge", "capacity": BLOCK, **SIZES}
LABEL, IDS = "neuron.amazonaws.com/ultraserver", ("server-id", "node-id")
SCRIPT = """\
import json, os, socket, time
told = {key: text for key, text in os.environ.items() if "NEURON_" in key or key == "RANK"}
print("told", json.dumps(told | {"pod": os.environ.get("HOSTNAME") or socket.gethostname()}), flush=True)
time.sleep(3600)
"""


class Cloud:
    def __init__(self, project, folder):
        self.project, self._folder = project, folder
        (folder / "where.py").write_text(SCRIPT)
        self._researcher = project.researcher()
        nodes = project.get("local", "nodes", "-l", "node.kubernetes.io/instance-type=trn2u.48xlarge")
        self.labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in nodes}

    def train(self, name, nodes, tier):
        asked = ("--workspace", str(self._folder), "--script", "where.py", "--image", "local/python", "--detach")
        asked += ("--name", name, "--nodes", str(nodes), "--topology", "hard", "--tier", tier)
        return self.project.trn("train", *asked)

    def pods(self, name):
        return self.project.get("local", *self._researcher, "pods", "-l", f"volcano.sh/job-name={name}")

    def places(self, name, nodes):
        """The nodes of a job's pods by pod, once all of them run."""

        def running():
            found = [each for each in self.pods(name) if each["status"]["phase"] == "Running"]
            return {each["metadata"]["name"]: each["spec"]["nodeName"] for each in found} if len(found) == nodes else {}

        return until(running, f"{name} runs")

    def parts(self, name, nodes, size):
        """How many of a job's nodes are in each UltraServer (4) or half (2)."""
        return Counter(self.labels[node][f"{LABEL}-server-id-{size}"] for node in self.places(name, nodes).values())

    def variables(self, pod, rank=None):
        """What a pod's rank says, or another rank in that pod's log."""

        def found():
            lines = self.project.kubectl("local", *self._researcher, "logs", pod).splitlines()
            said = [json.loads(each.partition("told ")[2]) for each in lines if "told {" in each]
            return next((each for each in said if (each["pod"] == pod if rank is None else each["RANK"] == rank)), None)

        return until(found, f"{pod} tells its variables")

    def cancel(self, *names):
        for name in names:
            self.project.kubectl("local", *self._researcher, "delete", "jobs.batch.volcano.sh", name, "--wait=false")
        until(lambda: not any(map(self.pods, names)), f"the pods of {names} go")

    def check_variables(self, name, nodes, size):
        """Each pod gets its node's place; numbers count the nodes of one UltraServer after the other."""
        places = self.places(name, nodes)
        named = {pod: [self.labels[node][f"{LABEL}-{it}-{size}"] for it in IDS] for pod, node in places.items()}
        first, numbers = min(places, key=named.get), {}
        for pod, (server, place) in named.items():
            told = self.variables(pod)
            assert told["NEURON_RT_ULTRASERVER_SERVER_ID"] == server
            assert told["NEURON_RT_ULTRASERVER_NODE_ID"] == place
            assert told["NEURON_RT_ULTRASERVER_MODE"] == {4: "1", 2: "3"}[size]
            assert told["NEURON_GLOBAL_TOPOID"] == told["RANK"]
            assert told["NEURON_GLOBAL_TOPOID0_HOST"] in (f"{first}.{name}", "127.0.0.1")
            numbers[int(told["NEURON_GLOBAL_TOPOID"])] = (server, int(place))
        assert [numbers[each] for each in range(nodes)] == sorted(numbers.values())
        assert self.variables(min(places), "0")["pod"] == first, "where people look for rank 0"


@pytest.fixture(scope="module")
def cloud(binaries, volcano_programs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ultraservers")
    with repository_cloud(folder, region="ap-south-2", network={"zoneIds": ZONES}, nodeGroups=[GROUP]) as project:
        yield Cloud(project, tmp_path_factory.mktemp("script"))


def test_gangs_get_whole_halves_and_ultraservers_or_wait(cloud):
    """One half is taken: a gang of 4 takes the other UltraServer, one of 2 a free half, one of 8 waits for both."""
    assert cloud.train("half", 2, "half").returncode == 0
    [taken] = cloud.parts("half", 2, 4)
    node, labels = next(each for each in cloud.labels.items() if each[1][f"{LABEL}-server-id-4"] != taken)
    other = labels[f"{LABEL}-server-id-4"]
    cloud.project.kubectl("local", "cordon", node)
    assert cloud.train("four", 4, "ultraserver").returncode == 0
    shown = f"3 of 4 nodes of UltraServer {other} are free and 2 of 4 nodes of UltraServer {taken} are free"
    until(lambda: shown in cloud.project.trn("status", "four").stdout, "it says what the gang waits for")
    assert not any(each["spec"].get("nodeName") for each in cloud.pods("four"))
    cloud.project.kubectl("local", "uncordon", node)
    assert cloud.parts("four", 4, 4) == {other: 4}
    assert cloud.train("two", 2, "half").returncode == 0
    assert (cloud.parts("two", 2, 4), len(cloud.parts("two", 2, 2))) == ({taken: 2}, 1)
    cloud.check_variables("four", 4, 4)
    cloud.check_variables("two", 2, 2)
    cloud.cancel("four", "two")
    assert cloud.train("eight", 8, "ultraserver").returncode == 0
    until(lambda: "in use by half" in cloud.project.trn("status", "eight").stdout, "it says what the gang waits for")
    assert not any(each["spec"].get("nodeName") for each in cloud.pods("eight"))
    cloud.cancel("half")
    assert sorted(cloud.parts("eight", 8, 4).values()) == [4, 4]
    cloud.check_variables("eight", 8, 4)
    cloud.cancel("eight")
