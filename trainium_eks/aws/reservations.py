"""Short On-Demand Capacity Reservations for one node group, and the instances of its Auto Scaling group.

Does I/O, by boto3, with the caller's credentials. An open reservation takes instances of the account with its type,
zone and placement group, also those that run already (EC2 user guide, Create a Capacity Reservation).
"""

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.resources import files
from typing import Any

from trainium_eks.aws import sessions
from trainium_eks.aws.market import OVER
from trainium_eks.aws.sessions import AwsError, NotAllowedError, saying
from trainium_eks.aws.tags import tags_of
from trainium_eks.model.catalogue import regions

CLUSTER_TAG = "KubernetesCluster"
GROUP_TAG, NODES_TAG, BEFORE_TAG, CALLER_TAG = (
    f"trainium-eks/{name}" for name in ("node-group", "nodes", "nodes-before", "reserved-by")
)
_LATE = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Reservation:
    """A reservation that a command made: ``free`` of its ``count`` instances can still start in it, and EC2 ends it
    within the hour after ``ends``. The command of ``caller``, an ARN, was to reach a number of ``nodes``, and to go
    back to ``before`` on a failure."""

    id: str
    state: str
    free: int
    count: int
    created: datetime
    ends: datetime
    nodes: int
    before: int
    caller: str

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state in OVER


@dataclass(frozen=True)
class GroupCapacity:
    """AWS as one node group needs it. Methods raise :class:`AwsError`."""

    region: str
    cluster: str
    group: str
    """Name in EKS."""
    instance_type: str
    zone_id: str
    placement_group: str = ""
    """Name of the cluster placement group; empty for none."""

    def _call(self, what: str, service: str, operation: str, **given: Any) -> Any:
        """Return an answer. ``what``: what it is for, after ``cannot``."""
        with saying(what):
            return getattr(sessions.client(service, self.region), operation)(**given)

    def _pages(self, what: str, operation: str, key: str, **given: Any) -> list[Any]:
        with saying(what):
            pages = sessions.client("ec2", self.region).get_paginator(operation).paginate(**given)
            return [each for page in pages for each in page[key]]

    @cached_property
    def caller(self) -> str:
        """The ARN of the caller's identity."""
        return str(self._call("ask AWS whose credentials these are", "sts", "get_caller_identity")["Arn"])

    @cached_property
    def _scaling_group(self) -> str:
        what, names = f"look at the node group {self.group}", {"clusterName": self.cluster, "nodegroupName": self.group}
        found = self._call(what, "eks", "describe_nodegroup", **names)["nodegroup"]
        groups = found.get("resources", {}).get("autoScalingGroups", ())
        if not groups:
            raise AwsError(f"the node group {self.group} has no Auto Scaling group: it is {found['status']}")
        return str(groups[0]["name"])

    def reserve(self, count: int, nodes: int, before: int, ends: datetime) -> str:
        """Reserve all instances or none; return the reservation's id."""
        tags = {"Name": f"trn scale {self.group} {nodes}", CLUSTER_TAG: self.cluster, GROUP_TAG: self.group}
        tags |= {NODES_TAG: str(nodes), BEFORE_TAG: str(before), CALLER_TAG: self.caller}
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        start = f"arn:{regions.partition(self.region)}:ec2:{self.region}:{self.caller.split(':')[4]}"
        place = {"PlacementGroupArn": f"{start}:placement-group/{self.placement_group}"}
        made = self._call(
            f"reserve {count} {self.instance_type} in {self.zone_id}",
            "ec2",
            "create_capacity_reservation",
            ClientToken=str(uuid.uuid4()),  # botocore's retries carry it: no two reservations
            InstanceType=self.instance_type,
            InstancePlatform="Linux/UNIX",
            AvailabilityZoneId=self.zone_id,
            InstanceCount=count,
            InstanceMatchCriteria="open",
            EndDateType="limited",
            EndDate=ends,
            TagSpecifications=[{"ResourceType": "capacity-reservation", "Tags": listed}],
            **(place if self.placement_group else {}),
        )
        return str(made["CapacityReservation"]["CapacityReservationId"])

    def reservations(self) -> list[Reservation]:
        """Return the group's reservations, the first made first; EC2 lists ended ones for a while, too."""
        what, operation = f"look at the reservations of {self.group}", "describe_capacity_reservations"
        of_type = [{"Name": "instance-type", "Values": [self.instance_type]}]  # the API names no filter by tag
        listed = self._pages(what, operation, "CapacityReservations", Filters=of_type)
        own = {CLUSTER_TAG: self.cluster, GROUP_TAG: self.group}.items()
        found = (_reservation(each) for each in listed if own <= tags_of(each.get("Tags", ())).items())
        return sorted(found, key=lambda each: (each.created, each.id))

    def change(self, id_: str, **changed: Any) -> None:
        """Change a reservation's ``InstanceCount``, or its ``EndDate``."""
        what, operation = f"change the reservation {id_}", "modify_capacity_reservation"
        self._call(what, "ec2", operation, CapacityReservationId=id_, **changed)

    def cancel(self, id_: str) -> None:
        """Cancel a reservation; its instances go on. One that has ended is no error."""
        try:
            what = f"cancel the reservation {id_}"
            self._call(what, "ec2", "cancel_capacity_reservation", CapacityReservationId=id_)
        except AwsError as error:
            if isinstance(error, NotAllowedError) or id_ not in {each.id for each in self.reservations() if each.over}:
                raise

    def instances(self) -> tuple[int, tuple[str, ...]]:
        """Return the desired size of the group's Auto Scaling group, and its instances that start or run."""
        what, names = f"look at the Auto Scaling group of {self.group}", [self._scaling_group]
        answer = self._call(what, "autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=names)
        if not (found := answer["AutoScalingGroups"]):
            raise AwsError(f"the Auto Scaling group {names[0]} of {self.group} is not there")
        ids = (each["InstanceId"] for each in found[0]["Instances"] if "Terminat" not in each["LifecycleState"])
        return found[0]["DesiredCapacity"], tuple(ids)

    def by_age(self, ids: Iterable[str]) -> list[str]:
        """Return instances of the group, the oldest first; the last are those that EC2 does not list yet."""
        own = [{"Name": "tag:aws:autoscaling:groupName", "Values": [self._scaling_group]}]
        found = self._pages(f"look at the instances of {self.group}", "describe_instances", "Reservations", Filters=own)
        started = {each["InstanceId"]: each["LaunchTime"] for part in found for each in part["Instances"]}
        return sorted(ids, key=lambda each: started.get(each, _LATE))

    def end(self, id_: str) -> None:
        """End one instance of the group, and make the group one smaller."""
        what, operation = f"end the instance {id_} of {self.group}", "terminate_instance_in_auto_scaling_group"
        self._call(what, "autoscaling", operation, InstanceId=id_, ShouldDecrementDesiredCapacity=True)

    def rights(self) -> str:
        """Return the IAM policy of a role that scales this cluster's groups whole, as JSON."""
        text = files("trainium_eks.model.policies").joinpath("whole_scaling.json").read_text(encoding="utf-8")
        names = {"<partition>": regions.partition(self.region), "<region>": self.region, "<cluster>": self.cluster}
        for place, name in names.items():
            text = text.replace(place, name)
        return json.dumps(json.loads(text))


def _reservation(found: dict[str, Any]) -> Reservation:
    tags, free = tags_of(found.get("Tags", ())), found.get("AvailableInstanceCount", 0)
    times = found["CreateDate"], found.get("EndDate") or _LATE
    sizes = int(tags.get(NODES_TAG, "0")), int(tags.get(BEFORE_TAG, "0"))
    id_, count = found["CapacityReservationId"], found["TotalInstanceCount"]
    return Reservation(id_, found["State"], free, count, *times, *sizes, tags.get(CALLER_TAG, ""))
