"""Who answers for the providers in the local cloud, with makers that make nothing."""

import json
from dataclasses import dataclass, field
from types import MappingProxyType

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import pytest

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local import events
from trainium_eks.local.backend import LocalBackend
from trainium_eks.local.changes import ApplyResult, Change
from trainium_eks.local.events import BackendOptions, Begun, Failed
from trainium_eks.local.handlers import ResourceRequest, kind_of, seconds
from trainium_eks.local.ledger import Ledger
from trainium_eks.local.nodes.node_pools import adopted_zones
from trainium_eks.plan.recording.program import RecordingError, record_program
from trainium_eks.plan.resource_types.simulation import Simulation


@dataclass
class Maker:
    """Remembers what it was asked for, and refuses one."""

    refused: str = ""
    asked: list[ResourceRequest] = field(default_factory=list)

    def reference(self, asked):
        return {"name": asked.registration.name}

    def apply(self, asked):
        self.asked.append(asked)
        if asked.registration.name == self.refused:
            raise ClusterError(f"the server refuses {self.refused}")
        real = kind_of(asked.registration.type) == "object"
        return ApplyResult(Change.CREATED, {"status": {"phase": "Active"}} if real else {})

    def delete(self, reference):
        raise AssertionError(reference)


class Cloud:
    def __init__(self, directory, refused="", adopted=MappingProxyType({})):
        self.makers = {kind: Maker(refused) for kind in ("object", "release", "nodes", "addon", "simulated")}
        self.ledger = Ledger.open(directory / "ledger")
        self.ledger.begin()
        self.events = []
        self.backend = LocalBackend(Simulation(), self.ledger, self.events.append, adopted)
        self.backend.connect(self.makers, endpoint="https://127.0.0.1:1", authority="Q0E=")

    def run(self, program):
        return record_program(program, backend=self.backend, foreign=True)

    def names_of(self, kind):
        return [event.urn.rpartition("::")[2] for event in self.events if isinstance(event, kind)]


def _namespace(name, *after, **options):
    opts = pulumi.ResourceOptions(depends_on=list(after), **options)
    return k8s.core.v1.Namespace(name, metadata={"name": name}, opts=opts)


def test_object_that_needs_an_unsimulated_value_is_refused(tmp_path):
    cloud = Cloud(tmp_path)

    def program(*, uses):
        topic = aws.sns.Topic("topic")
        k8s.core.v1.ConfigMap("map", metadata={"name": "map"}, data={"arn": topic.arn} if uses else {})

    assert [each.name for each in cloud.run(lambda: program(uses=False)).not_simulated] == ["topic"]
    with pytest.raises(RecordingError, match="map: cannot be made here: data comes from what is not simulated"):
        cloud.run(lambda: program(uses=True))


def test_creation_is_recorded_before_and_after_and_stops_at_a_failure(tmp_path):
    cloud = Cloud(tmp_path, refused="bad")

    def program():
        _namespace("after", _namespace("bad", _namespace("first")))

    with pytest.raises(RecordingError, match="the server refuses bad"):
        cloud.run(program)
    assert cloud.names_of(Failed) == ["bad"]
    assert "after" not in cloud.names_of(Begun)
    assert "after" not in [asked.registration.name for asked in cloud.makers["object"].asked]
    held = {each.urn.rpartition("::")[2]: each for each in Ledger.open(tmp_path / "ledger").holdings}
    assert (held["first"].done, held["bad"].done, held["bad"].reference) == (True, False, {"name": "bad"})
    assert held["first"].urn in held["bad"].after
    begun = cloud.names_of(Begun)
    with pytest.raises(RecordingError, match="not started: something else failed first"):
        cloud.run(lambda: _namespace("room"))
    assert cloud.names_of(Begun) == begun


def test_nodes_know_their_subnets_and_launch_templates(tmp_path):
    adopted = adopted_zones({"existingNetwork": {"privateSubnets": [{"id": "subnet-1", "zoneId": "usw2-az1"}]}})
    assert adopted_zones({}) == {}
    cloud, endpoints = Cloud(tmp_path, adopted=adopted), []

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
    types = ("aws:eks/cluster:Cluster", "kubernetes:core/v1:Namespace")
    assert [cloud.backend.simulates(each) for each in types] == [True, False]
    (asked,) = cloud.makers["nodes"].asked
    zones = [asked.made[subnet]["availabilityZoneId"] for subnet in asked.registration.inputs["subnetIds"]]
    assert zones == ["usw2-az4", "usw2-az1"]
    assert asked.made[asked.registration.inputs["launchTemplate"]["id"]]["userData"] == "eA=="


@pytest.mark.parametrize(
    ("timeouts", "first", "later"),
    [
        ({}, 300, 300),
        ({"create": "10m"}, 600, 600),
        ({"create": "10m", "update": "20s"}, 600, 20),
        ({"update": "20s"}, 300, 20),
    ],
)
def test_resource_has_its_programs_timeout(tmp_path, timeouts, first, later):
    for expected in (first, later):
        cloud = Cloud(tmp_path)
        cloud.run(lambda: _namespace("room", custom_timeouts=pulumi.CustomTimeouts(**timeouts)))
        (asked,) = cloud.makers["object"].asked
        assert asked.timeout_seconds == expected
    assert asked.held.done, "what it held before"


def test_durations_are_parsed_like_gos():
    durations = {"30m": 1800, "1h30m": 5400, "90s": 90, "1.5h": 5400}
    assert {text: seconds(text) for text in durations} == durations
    for text in ("", "30", "m", "5 minutes", "1d"):
        with pytest.raises(ClusterError, match="not a duration"):
            seconds(text)


def test_events_and_options_survive_serialization():
    done = events.Done("u", "object", "name", Change.REPLACED, ("a note",), "no chart")
    others = (events.Waiting("u", "for a pod"), Failed("u", "refused"), events.Abandoned("u", "refused"))
    for event in (Begun("u"), done, *others, events.Deleted("u", "nodes"), events.Kept("u")):
        assert events.from_json(json.loads(json.dumps(events.to_json(event)))) == event
    options = BackendOptions("/r", "/p", "/h", "https://s", {"x.large": {"vcpus": 2}}, ("fsx.csi.aws.com",))
    assert BackendOptions.from_json(json.loads(json.dumps(options.to_json()))) == options


def _files():
    volume = k8s.core.v1.PersistentVolume("volume", spec={"csi": {"driver": "d", "volume_handle": "h"}})
    claim = k8s.core.v1.PersistentVolumeClaim("claim", spec={"volume_name": volume.metadata["name"]})
    pod = {"volumes": [{"name": "v", "persistent_volume_claim": {"claim_name": claim.metadata["name"]}}]}
    k8s.batch.v1.Job("job", spec={"template": {"spec": pod}})
    k8s.core.v1.ConfigMap("beside", data={"claim": "x"}, opts=pulumi.ResourceOptions(depends_on=[claim]))


def test_dependents_of_a_replaced_volume_are_deleted_before_it(tmp_path):
    Cloud(tmp_path).run(_files)
    cloud = Cloud(tmp_path)
    deleted = []

    class Replacing(Maker):
        def delete(self, reference):
            deleted.append(reference["name"])

        def apply(self, asked):
            if asked.registration.name == "volume":
                asked.make_room()
            return super().apply(asked)

    cloud.makers["object"] = Replacing()
    cloud.run(_files)
    assert deleted == ["job", "claim"]
    assert len(cloud.ledger.holdings) == len(Ledger.open(tmp_path / "ledger").holdings)
    assert {each.urn.rpartition("::")[2] for each in cloud.ledger.holdings} >= {"volume", "claim", "job", "beside"}
