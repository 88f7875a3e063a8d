"""EC2, Auto Scaling, EKS and the nodes of one group, by a clock that only the sleeps of a command move.

Requests, answers and errors have the shapes of botocore's models. What AWS leaves open is drawn by chance: whether a
reservation is active at once, when it is listed, whether running instances take its places at once, how long a launch
takes, when within the hour a reservation ends.
"""

import itertools
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace

import botocore.session  # type: ignore[import-untyped]
from botocore import xform_name
from botocore.exceptions import ClientError, EndpointConnectionError  # type: ignore[import-untyped]
from botocore.validate import ParamValidator  # type: ignore[import-untyped]

TYPE, ZONE = "trn1.32xlarge", "usw2-az4"
ANN, BEN = (f"arn:aws:sts::111122223333:assumed-role/engineers/{name}" for name in ("ann", "ben"))
NEVER = float("inf")
BEGAN = datetime(2027, 1, 11, tzinfo=UTC).timestamp()


class KilledError(BaseException):
    """The process is gone: none of its requests has an effect any more."""


def refusal(code, operation="", message="no"):
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


@cache
def model(service):
    core = botocore.session.get_session()
    paged = core.get_component("data_loader").load_service_model(service, "paginators-1")["pagination"]
    of_service = core.get_service_model(service)
    return {xform_name(name): (of_service.operation_model(name), name in paged) for name in of_service.operation_names}


def form(value):
    """The types within a value: values of one form are valid or not together."""
    if isinstance(value, dict):
        return tuple((key, form(each)) for key, each in value.items())
    return (list, *dict.fromkeys(map(form, value))) if isinstance(value, list) else type(value)


_CHECKED = set()
"""Shapes with forms of values that fit them."""


def check(shape, value):
    key = (shape.name, form(value))
    if key not in _CHECKED:
        report = ParamValidator().validate(value, shape)
        assert not report.has_errors(), f"{shape.name}: {report.generate_report()}"
        _CHECKED.add(key)


class Held(SimpleNamespace):
    """A reservation."""

    @property
    def room(self):
        return self.count - len(self.inside) - self.taken if self.state == "active" else self.count


class Cloud:
    def __init__(self, chance, *, free=NEVER, quota=NEVER, before=0, others=0, failing=0.0, slow=0.0):
        self.chance, self.free, self.quota, self.failing, self.slow = chance, free, quota, failing, slow
        self.others = others
        """Running instances of the type in other groups, which an open reservation takes, too."""
        self.faults = {}
        """Number of a request to what happens then: a code of AWS, `network`, `lost` (its answer), `kill` or `ctrl-c`
        with `before` or `after`, or a function. At the name of a request: what happens to each of them; at `after` and
        the name: a function, once."""
        self.now, self.caller, self.calls, self.asked, self.killed = BEGAN, ANN, 0, set(), False
        self.names = (f"{number:017x}" for number in itertools.count(1))
        self.reservations, self.instances = {}, {}
        self.desired, self.busy_until, self.launches_at, self.most = before, 0.0, 0.0, before
        for _ in range(before):
            self._add(0.0)
        self.old = {*self.instances}

    # --- time ---

    def sleep(self, seconds):
        self.now += seconds
        self.advance()

    @property
    def time(self):
        """In place of the module ``time``."""
        return SimpleNamespace(monotonic=lambda: self.now, time=lambda: self.now, sleep=self.sleep)

    @property
    def alive(self):
        return [each for each in self.instances.values() if each.state != "Terminating"]

    @property
    def live(self):
        return [each for each in self.reservations.values() if each.state in ("pending", "active")]

    def advance(self):
        for held in self.live:
            if held.state == "pending" and held.active <= self.now:
                held.state = "failed" if held.fails else "active"
                self.free += held.count if held.fails else 0
            self._fill(held)
            if held.state == "active" and held.over <= self.now:
                self._close(held, "expired")
        if self.launches_at <= self.now:
            while len(self.alive) < self.desired and self._launch():
                pass
            for each in sorted(self.alive, key=lambda each: each.launched)[: max(len(self.alive) - self.desired, 0)]:
                self._end(each)  # EKS' groups end the oldest first
        self.most = max(self.most, len(self.alive))

    def _fill(self, held):
        """Instances that ran before take places; EC2 then needs no further room for these."""
        if held.state == "active" and held.fills <= self.now:
            taken = min(held.running, held.room)
            held.taken, held.running, self.free = held.taken + taken, held.running - taken, self.free + taken

    def _close(self, held, state):
        self.free += held.room
        held.state = state

    def _used(self):
        return len(self.alive) + sum(held.room for held in self.live)

    def _launch(self):
        held = next((each for each in self.live if each.state == "active" and each.room > 0), None)
        if held is None and (self.free < 1 or self._used() >= self.quota):
            return False
        joins = NEVER if self.chance.random() < self.failing else self.now + self.chance.uniform(90, 400)
        name = self._add(joins + (1600 if self.chance.random() < self.slow else 0))
        if held is None:
            self.free -= 1
        else:
            held.inside.add(name)
        return True

    def _add(self, joins):
        name = f"i-{next(self.names)}"
        self.instances[name] = SimpleNamespace(name=name, launched=self.now, joins=joins, state="InService")
        return name

    def _end(self, instance):
        instance.state = "Terminating"
        held = next((each for each in self.live if instance.name in each.inside), None)
        if held is None:
            self.free += 1
        else:
            held.inside.discard(instance.name)

    # --- requests ---

    def client(self, service, _region):
        """A client of boto3."""
        return Client(self, service)

    def call(self, service, name, given):
        if self.killed:
            raise KilledError
        operation, _ = model(service)[name]
        check(operation.input_shape, given)
        self.advance()
        self.calls += 1
        self.asked.add(f"{service}:{operation.name}")
        fault = self.faults.get(self.calls) or self.faults.get(name, "")
        if callable(fault):
            fault()
        elif fault.endswith("before"):
            self._stop(fault)
        elif fault == "network":
            raise EndpointConnectionError(endpoint_url=f"https://{service}.example")
        elif fault and fault != "lost" and not fault.endswith("after"):
            raise refusal(fault)
        answer = getattr(self, f"_{name}")(**given)
        self.faults.pop(f"after {name}", bool)()
        if fault == "lost":
            raise EndpointConnectionError(endpoint_url=f"https://{service}.example")
        if fault in ("kill after", "ctrl-c after"):
            self._stop(fault)
        check(operation.output_shape, answer)
        return answer

    def _stop(self, fault):
        self.killed = fault.startswith("kill")
        raise KilledError if self.killed else KeyboardInterrupt

    def _get_caller_identity(self):
        return {"Arn": self.caller}

    def _create_capacity_reservation(self, *, InstanceCount, EndDate, TagSpecifications, **given):  # noqa: N803
        assert (given["InstanceType"], given["AvailabilityZoneId"], given["EndDateType"]) == (TYPE, ZONE, "limited")
        running = 0 if "PlacementGroupArn" in given else self.others
        running += sum(not any(each.name in held.inside for held in self.live) for each in self.alive)
        at_once, ends, chance = self.chance.random() < 0.7, EndDate.timestamp(), self.chance
        needed = InstanceCount - (min(running, InstanceCount) if at_once else 0)
        if needed > self.free:
            raise refusal("InsufficientInstanceCapacity", message="There is not enough capacity.")
        if self._used() + needed > self.quota:
            raise refusal("InstanceLimitExceeded", message="Your quota allows for fewer.")
        held = Held(
            id=f"cr-{next(self.names)}", count=InstanceCount, inside=set(), taken=0, running=running, created=self.now,
            ends=ends, over=ends + chance.uniform(0, 3600), tags=TagSpecifications[0]["Tags"], state="pending",
            active=self.now + chance.choice((0, 0, 20)), fails=chance.random() < 0.03,
            listed=self.now + chance.choice((0, 0, 1, 4)), fills=self.now + (0 if at_once else 4),
        )  # fmt: skip
        self.reservations[held.id], self.free = held, self.free - InstanceCount
        if held.active == self.now:
            held.state = "active"
            self._fill(held)
        return {"CapacityReservation": self._shown(held)}

    def _shown(self, held):
        times = {"CreateDate": held.created, "EndDate": held.ends}
        shown = {"CapacityReservationId": held.id, "State": held.state, "TotalInstanceCount": held.count}
        shown |= {"AvailableInstanceCount": held.room if held.state == "active" else 0, "Tags": held.tags}
        return shown | {key: datetime.fromtimestamp(each, UTC) for key, each in times.items()}

    def _describe_capacity_reservations(self, *, Filters):  # noqa: N803
        assert Filters == [{"Name": "instance-type", "Values": [TYPE]}]
        listed = [self._shown(held) for held in self.reservations.values() if held.listed <= self.now]
        return {"CapacityReservations": listed}

    def _active(self, id_):
        held = self.reservations[id_]
        if held.listed > self.now:
            raise refusal("InvalidCapacityReservationId.NotFound")
        if held.state != "active":
            raise refusal("IncorrectState")
        return held

    def _modify_capacity_reservation(self, CapacityReservationId, InstanceCount=None, EndDate=None, **_):  # noqa: N803
        held = self._active(CapacityReservationId)
        if EndDate is not None:
            held.ends, held.over = EndDate.timestamp(), EndDate.timestamp() + self.chance.uniform(0, 3600)
        more = (InstanceCount or held.count) - held.count
        if max(more - held.running, 0) > self.free:
            raise refusal("InsufficientInstanceCapacity")
        self.free, held.count = self.free - more, held.count + more
        self._fill(held)
        return {"Return": True}

    def _cancel_capacity_reservation(self, CapacityReservationId):  # noqa: N803
        self._close(self._active(CapacityReservationId), "cancelled")
        return {"Return": True}

    def _describe_nodegroup(self, **_):
        group = {"status": "ACTIVE", "resources": {"autoScalingGroups": [{"name": "asg"}]}, "health": {"issues": []}}
        return {"nodegroup": {**group, "scalingConfig": {"desiredSize": self.desired, "minSize": 0, "maxSize": 8}}}

    def _update_nodegroup_config(self, *, scalingConfig, **_):  # noqa: N803
        if self.busy_until > self.now:
            raise refusal("ResourceInUseException")
        self.busy_until = self.now + self.chance.choice((0, 8, 30))
        self.desired, self.launches_at = scalingConfig["desiredSize"], self.now + self.chance.choice((1, 20))
        return {}

    def _describe_auto_scaling_groups(self, **_):
        fixed = {"AvailabilityZone": "us-west-2d", "HealthStatus": "Healthy", "ProtectedFromScaleIn": False}
        listed = [{**fixed, "InstanceId": each.name, "LifecycleState": each.state} for each in self.instances.values()]
        group = {"AutoScalingGroupName": "asg", "MinSize": 0, "MaxSize": 8, "DefaultCooldown": 300}
        group |= {"AvailabilityZones": [], "HealthCheckType": "EC2", "CreatedTime": datetime.now(UTC)}
        return {"AutoScalingGroups": [{**group, "DesiredCapacity": self.desired, "Instances": listed}]}

    def _describe_instances(self, **_):
        moments = ((each.name, datetime.fromtimestamp(each.launched, UTC)) for each in self.instances.values())
        listed = [{"InstanceId": name, "LaunchTime": moment} for name, moment in moments]
        return {"Reservations": [{"Instances": listed[::-1]}]}

    def _terminate_instance_in_auto_scaling_group(self, *, InstanceId, ShouldDecrementDesiredCapacity):  # noqa: N803
        if self.chance.random() < 0.1:
            raise refusal("ScalingActivityInProgress")
        self.desired -= ShouldDecrementDesiredCapacity
        self._end(self.instances[InstanceId])
        return {}

    def list(self, *_, **__):
        """The nodes, in place of the API server's list."""
        if self.killed:
            raise KilledError
        self.advance()
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        return [{"metadata": {"name": each.name}, "status": ready} for each in self.alive if each.joins <= self.now]


class Client:
    def __init__(self, cloud, service):
        self._cloud, self._service = cloud, service

    def __getattr__(self, name):
        return lambda **given: self._cloud.call(self._service, name, given)

    def get_paginator(self, name):
        assert model(self._service)[name][1], f"{name} has no pages"
        return SimpleNamespace(paginate=lambda **given: [getattr(self, name)(**given)])
