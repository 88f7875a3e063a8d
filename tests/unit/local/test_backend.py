"""Who answers for the providers in the local cloud, with makers that make nothing."""

import json
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pytest

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local import events, inventory
from trainium_eks.local.backend import LocalBackend
from trainium_eks.local.changes import ApplyResult, Change
from trainium_eks.local.events import BackendOptions, Failed, Working
from trainium_eks.local.makers import ResourceRequest, kind_of, seconds
from trainium_eks.local.nodes.node_pools import adopted_zones
from trainium_eks.plan.recording.program import RecordingError, record_program
from trainium_eks.plan.resource_types.simulation import Simulation


@dataclass
class Makers:
    """Records the requests, and refuses one."""

    refused: str = ""
    asked: list[ResourceRequest] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def apply(self, asked):
        self.asked.append(asked)
        if asked.resource.name == self.refused:
            raise ClusterError(f"the server refuses {self.refused}")
        real = kind_of(asked.resource.type) == "object"
        return ApplyResult(Change.CREATED, {"status": {"phase": "Active"}} if real else {})

    def delete(self, _kind, reference):
        self.deleted.append(reference["name"])

    def of(self, type_):
        return [each for each in self.asked if each.resource.type == type_]


class Cloud:
    def __init__(self, refused="", adopted=MappingProxyType({}), before=()):
        self.makers = Makers(refused)
        self.events = []
        self.backend = LocalBackend(Simulation(), before, self.events.append, adopted)
        self.backend.connect(self.makers, endpoint="https://127.0.0.1:1", authority="Q0E=")

    def run(self, program):
        return record_program(program, backend=self.backend, foreign=True)

    def names_of(self, kind):
        return [event.urn.rpartition("::")[2] for event in self.events if isinstance(event, kind)]


NAMESPACE = "kubernetes:core/v1:Namespace"


def _namespace(name, *after, **options):
    opts = pulumi.ResourceOptions(depends_on=list(after), **options)
    return k8s.core.v1.Namespace(name, metadata={"name": name}, opts=opts)


def test_object_that_needs_an_unsimulated_value_is_refused():
    cloud = Cloud()

    def program(*, uses):
        topic = aws.sns.Topic("topic")
        k8s.core.v1.ConfigMap("map", metadata={"name": "map"}, data={"arn": topic.arn} if uses else {})

    assert [each.name for each in cloud.run(lambda: program(uses=False)).not_simulated] == ["topic"]
    with pytest.raises(RecordingError, match="map: cannot be made here: data comes from what is not simulated"):
        cloud.run(lambda: program(uses=True))


def test_nothing_begins_after_the_first_failure():
    cloud = Cloud(refused="bad")

    def program():
        _namespace("after", _namespace("bad", _namespace("first")))

    with pytest.raises(RecordingError, match="the server refuses bad"):
        cloud.run(program)
    assert cloud.names_of(Failed) == ["bad"]
    begun = cloud.names_of(Working)
    assert "after" not in begun
    assert [asked.resource.name for asked in cloud.makers.of(NAMESPACE)] == ["first", "bad"]
    with pytest.raises(RecordingError, match="not started: something else failed first"):
        cloud.run(lambda: _namespace("room"))
    assert cloud.names_of(Working) == begun


def test_nodes_know_their_subnets_and_launch_templates():
    adopted = adopted_zones({"existingNetwork": {"privateSubnets": [{"id": "subnet-1", "zoneId": "usw2-az1"}]}})
    assert adopted_zones({}) == {}
    cloud, endpoints = Cloud(adopted=adopted), []

    def program():
        cluster = aws.eks.Cluster("c", role_arn="arn:aws:iam::000000000000:role/r", vpc_config={"subnet_ids": []})
        cluster.endpoint.apply(endpoints.append)
        subnet = aws.ec2.Subnet("s", vpc_id="vpc-1", cidr_block="10.0.0.0/24", availability_zone_id="usw2-az4")
        template = aws.ec2.LaunchTemplate("t", user_data="eA==")
        aws.eks.NodeGroup(
            "n",
            cluster_name="c",
            node_role_arn="arn:aws:iam::000000000000:role/r",
            subnet_ids=[subnet.id, "subnet-1"],
            scaling_config={"desired_size": 1, "min_size": 0, "max_size": 1},
            launch_template={"id": template.id, "version": "1"},
        )

    cloud.run(program)
    assert endpoints == ["https://127.0.0.1:1"]
    types = ("aws:eks/cluster:Cluster", NAMESPACE)
    assert [cloud.backend.simulates(each) for each in types] == [True, False]
    (asked,) = cloud.makers.of("aws:eks/nodeGroup:NodeGroup")
    zones = [asked.known[subnet]["availabilityZoneId"] for subnet in asked.resource.inputs["subnetIds"]]
    assert zones == ["usw2-az4", "usw2-az1"]
    assert asked.known[asked.resource.inputs["launchTemplate"]["id"]]["userData"] == "eA=="


@pytest.mark.parametrize(
    ("timeouts", "first", "later"),
    [
        ({}, 300, 300),
        ({"create": "10m"}, 600, 600),
        ({"create": "10m", "update": "20s"}, 600, 20),
        ({"update": "20s"}, 300, 20),
    ],
)
def test_resource_has_the_time_limit_of_its_program(timeouts, first, later):
    def asked(before):
        cloud = Cloud(before=before)
        graph = cloud.run(lambda: _namespace("room", custom_timeouts=pulumi.CustomTimeouts(**timeouts)))
        (request,) = cloud.makers.of(NAMESPACE)
        return request.timeout_seconds, inventory.list_items(graph)

    seconds, now = asked([])
    assert (seconds, asked(now)[0]) == (first, first), "an unfinished creation is none"
    assert asked([replace(each, whole=True) for each in now])[0] == later


def test_durations_are_parsed_like_gos():
    durations = {"30m": 1800, "1h30m": 5400, "90s": 90, "1.5h": 5400}
    assert {text: seconds(text) for text in durations} == durations
    for text in ("", "30", "m", "5 minutes", "1d"):
        with pytest.raises(ClusterError, match="not a duration"):
            seconds(text)


def test_events_and_options_survive_serialization():
    done = events.Done("u", "object", "name", Change.REPLACED, ("a note",), "no chart")
    for event in (Working("u"), Working("u", "for a pod"), done, Failed("u", "refused")):
        assert events.from_json(json.loads(json.dumps(events.to_json(event)))) == event
    options = BackendOptions("/r", "/p", "/h", "https://s", {"x.large": {"vcpus": 2}}, ("fsx.csi.aws.com",))
    assert asdict(BackendOptions(**json.loads(json.dumps(asdict(options))))) == json.loads(json.dumps(asdict(options)))


def _files():
    volume = k8s.core.v1.PersistentVolume("volume", spec={"csi": {"driver": "d", "volume_handle": "h"}})
    claim = k8s.core.v1.PersistentVolumeClaim("claim", spec={"volume_name": volume.metadata["name"]})
    pod = {"volumes": [{"name": "v", "persistent_volume_claim": {"claim_name": claim.metadata["name"]}}]}
    k8s.batch.v1.Job("job", spec={"template": {"spec": pod}})
    k8s.core.v1.ConfigMap("beside", data={"claim": "x"}, opts=pulumi.ResourceOptions(depends_on=[claim]))


def test_claim_and_its_job_are_deleted_before_their_replaced_volume():
    before = inventory.list_items(Cloud().run(_files))
    cloud = Cloud(before=before)
    apply = cloud.makers.apply

    def replacing(asked):
        if asked.resource.name == "volume":
            asked.make_room()
        return apply(asked)

    cloud.makers.apply = replacing
    cloud.run(_files)
    assert [name.partition("-sim-")[0] for name in cloud.makers.deleted] == ["job", "claim"], "what only waits stays"
