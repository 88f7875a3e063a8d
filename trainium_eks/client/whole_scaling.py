"""Scaling of a node group to all nodes or to none more: EC2 reserves all missing instances before the first one starts.

A reservation carries, in its tags, the sizes before and after, and the caller: the same command, run again after a
crash, goes on with it. Without that EC2 ends it, within the hour after its end date.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from trainium_eks.aws.reservations import GroupCapacity, Reservation
from trainium_eks.aws.sessions import Aws, AwsError, NotAllowedError
from trainium_eks.client import scaling
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.notices import Say
from trainium_eks.client.session import Session
from trainium_eks.client.signals import handled
from trainium_eks.jobs.submit import cluster_facts
from trainium_eks.model.outputs import NodeGroupOutput
from trainium_eks.model.validation.problems import Problem, plural

T = TypeVar("T")

GIVE_BACK_SECONDS = 300.0
"""Longest time for going back after a failure, and for an update of the group that EKS still works on."""

LOOK_SECONDS = 5.0

_GROWTHS = 3
"""Most enlargements of a reservation whose places running instances have taken."""

_TEMPORARY = (
    *("ResourceInUseException", "ThrottlingException", "Throttling", "RequestLimitExceeded", "ServerException"),
    *("", "InternalError", "InternalFailure", "Unavailable", "ServiceUnavailable"),
)
"""Error codes after which the same request may succeed; an empty one is the network's."""


def is_whole(group: NodeGroupOutput, requested: bool | None) -> bool:
    """Return whether a group is scaled to all nodes or none. ``requested``: the option, None for the group's default.

    UsageError: requested for a group whose capacity is not On-Demand.
    """
    if requested and group.capacity != "on-demand":
        reason = f"it reserves On-Demand capacity alone, and that of {group.name} is {group.capacity}"
        problem = Problem("--all-or-nothing", reason, "leave it out, or name another group")
        raise UsageError(f"{group.name} was not scaled", [problem], spell=str)
    return group.all_or_nothing if requested is None else requested


def for_gang(session: Session, group: NodeGroupOutput, nodes: int, say: Say, all_or_nothing: bool | None) -> None:
    """Scale up a group that has fewer nodes than a gang needs; wait for nodes only with all or nothing, as the gang
    waits for them.

    A group whose Capacity Block is to come gets its nodes by itself. A caller without permission gets a warning, and
    the job waits until an autoscaler or a user with permission scales the group.
    """
    if group.starts and datetime.now(UTC) < datetime.fromisoformat(group.starts):
        say(f"{group.name} gets its nodes when its Capacity Block starts, at {group.starts}; the job waits for them.")
        return
    whole = is_whole(group, all_or_nothing)
    there = len(cluster_facts.nodes_of(session.api, group))
    nodes = min(nodes, group.max_size)  # a gang of several UltraServers takes several groups
    if there >= nodes:
        return
    say(scaling.cost(session, group, there, nodes))
    try:
        (scale if whole else scaling.resize)(session, group, nodes, say)
    except NotAllowedError as error:
        command = f"trn scale {group.name} {nodes}{' --all-or-nothing' if whole else ''}"
        say(f"warning: {str(error).splitlines()[0]}")
        say(f"  The job waits for {plural(nodes, 'node')}: ask a user who may run `{command}`.")


def scale(session: Session, group: NodeGroupOutput, nodes: int, say: Say) -> None:
    """Give a group a number of Ready nodes, or leave it with those that it had.

    CommandError: not all nodes could be had, or another command scales the group. NotAllowedError: a right is missing;
    its text has the IAM policy.
    """
    if session.is_local:
        say("  The local cloud always has all nodes: it reserves none.")
        scaling.resize(session, group, nodes, say)
        scaling.await_nodes(session, group, nodes, say)
        return
    place = group.eks_name, group.instance_type, group.zone_id, group.placement_group
    aws = GroupCapacity(session.outputs.region, session.outputs.cluster_name, *place)
    try:
        _Attempt(session, group, nodes, say, aws).run()
    except NotAllowedError as error:
        raise NotAllowedError(f"{error}\n  What it takes: {aws.rights()}", error.code) from None


@dataclass
class _Attempt:
    """One attempt to scale a group, and its undoing."""

    session: Session
    group: NodeGroupOutput
    nodes: int
    say: Say
    aws: GroupCapacity
    before: int = 0
    held: str = ""
    """Id of the reservation; empty before it is known."""
    touched: bool = False
    """Whether the group's size may be another one because of this command."""
    deadline: float = 0.0

    def run(self) -> None:
        """Scale, or go back."""
        self.deadline = time.monotonic() + scaling.READY_SECONDS
        live = (each for each in self.aws.reservations() if not each.over)
        found, (desired, ids) = next(live, None), self.aws.instances()
        if found is not None and not self._is_own(found):
            raise self._occupied(found)
        if found is None and desired != len(ids):
            fix = f"Wait until it has all, or give it those: trn scale {self.group.name} {len(ids)}"
            title = f"{self.group.name} has the size {desired}, and {plural(len(ids), 'node')} now"
            raise CommandError(title, detail=fix)
        if found is None and len(ids) >= self.nodes:
            scaling.resize(self.session, self.group, self.nodes, self.say)
            scaling.await_nodes(self.session, self.group, self.nodes, self.say)
            return
        self.before = found.before if found else desired
        # They end a command in a pipeline, or with its terminal, and act as Ctrl-C does.
        with handled(_interrupt, "SIGTERM", "SIGHUP"):
            try:
                self._reserve(found, self.nodes - len(ids))
                self._await_capacity(renewed=found is not None)
                self._persist(lambda: self._resize(self.nodes), _TEMPORARY)
                scaling.warn_of_config(self.group, self.nodes, self.say)
                seconds = self.deadline - time.monotonic()
                scaling.await_nodes(self.session, self.group, self.nodes, self.say, seconds)
            except BaseException as error:
                if (failure := self._go_back(error)) is None:
                    raise
                raise failure from None
            if left := self._undo(self._cancel):
                self.say(left)

    def _is_own(self, found: Reservation) -> bool:
        return (found.caller, found.nodes) == (self.aws.caller, self.nodes)

    def _occupied(self, found: Reservation) -> CommandError:
        name, whose = self.group.name, "you" if found.caller == self.aws.caller else found.caller
        since, ends = (f"{each:%Y-%m-%d %H:%M} UTC" for each in (found.created, found.ends))
        again = f"`trn scale {name} {found.nodes} --all-or-nothing` goes on with it. " if whose == "you" else ""
        return CommandError(
            f"{name} is being scaled to {plural(found.nodes, 'node')} by {whose}, since {since}, with the reservation "
            f"{found.id} until {ends}",
            detail=f"{again}If that command no longer runs: {self._cancel_command(found.id)}, and "
            f"`trn scale {name} {found.before}` for the size of before.",
        )

    def _reserve(self, found: Reservation | None, missing: int) -> None:
        seconds = scaling.READY_SECONDS + GIVE_BACK_SECONDS
        ends = (datetime.fromtimestamp(time.time(), UTC) + timedelta(seconds=seconds)).replace(microsecond=0)
        if found is not None:
            self.held, self.touched = found.id, True
            self.say(f"  This command was run before: it goes on with the reservation {found.id}.")
            self.aws.change(found.id, EndDateType="limited", EndDate=ends)
            return
        self.held = self.aws.reserve(missing, self.nodes, self.before, ends)
        self.say(
            f"  {missing} {self.group.instance_type} are reserved in {self.group.zone_id} and paid from now on "
            f"({self.held}). Should this command be killed, EC2 ends that by {ends + timedelta(hours=1):%H:%M} UTC."
        )

    def _await_capacity(self, *, renewed: bool) -> None:
        """Wait until all missing instances can start in the reservation. ``renewed``: they may do so already."""
        growths = looks = 0
        while looks < 2:
            time.sleep(LOOK_SECONDS)  # first, because EC2 may list reservations late
            (desired, ids), listed = self._persist(lambda: (self.aws.instances(), self.aws.reservations()), _TEMPORARY)
            if not renewed and (desired, len(ids)) != (self.before, self.before):
                self.before = len(ids)
                raise AwsError(f"another command has changed the size of {self.group.name}")
            if renewed and self.nodes in (desired, len(ids)):
                return
            own = next((each for each in listed if each.id == self.held), None)
            if own is not None and own.over:
                raise AwsError(f"EC2 gives the reservation {own.id} the state {own.state}")
            first = next((each for each in listed if not each.over), own)
            if first is not None and own is not None and first is not own:
                raise self._occupied(first)  # made at the same time, and first
            if own is not None and own.state == "active":
                short = self.nodes - len(ids) - own.free
                looks = looks + 1 if short <= 0 else 0
                if short > 0:  # instances that run already have taken places, as in any open reservation
                    growths += 1
                    self.aws.change(self.held, InstanceCount=own.count + short)
            if growths > _GROWTHS or time.monotonic() > self.deadline:
                raise AwsError(f"the reservation {self.held} does not get room for {plural(self.nodes, 'node')}")

    def _resize(self, nodes: int) -> None:
        self.touched = True
        Aws(self.aws.region).scale(self.aws.cluster, self.aws.group, nodes)

    def _go_back(self, error: BaseException) -> CommandError | None:
        """Restore the group's former size, and cancel the reservation. Return the failure that an error of AWS or of
        the wait is; None for another error, which stays as it is."""
        name = self.group.name
        if not isinstance(error, Exception):
            self.say(f"  Interrupted: {name} goes back to {plural(self.before, 'node')}.")
        # The size first: the reservation says what it was.
        left = self._undo(*([self._shrink] if self.touched else []), self._cancel)
        back = left or f"  {name} has {plural(self.before, 'node')} as before."
        if isinstance(error, NotAllowedError) or not isinstance(error, AwsError | CommandError):
            self.say(back)
            return None
        reasons = [error.text() if isinstance(error, CommandError) else str(error)]
        if isinstance(error, AwsError) and error.code in ("InstanceLimitExceeded", "VcpuLimitExceeded"):
            reasons.append("The account's quota of running instances is too small for all: `trn check` names it.")
        kind = f"--type {self.group.instance_type} --nodes {self.nodes}"
        reasons.append(f"What else could be had: `trn capacity {kind} --hours HOURS --by DATE`")
        return CommandError(f"{name} did not get all {plural(self.nodes, 'node')}", detail="\n".join((*reasons, back)))

    def _undo(self, *steps: Callable[[], None]) -> str:
        """Do steps, each until it succeeds, for a while; return what is left to do. A second Ctrl-C prints it."""
        try:
            left = next(filter(None, map(self._failure_of, steps)), "")
        except KeyboardInterrupt:
            self.say(self._left("the command was interrupted"))
            raise
        return self._left(left) if left else ""

    def _left(self, reason: str) -> str:
        return (
            f"warning: {self.group.name} is not as it should be: {reason}\n"
            f"  The same command mends it. The reservation ends by itself, or: {self._cancel_command(self.held)}"
        )

    def _failure_of(self, step: Callable[[], None]) -> str:
        try:
            self._persist(step)
        except AwsError as error:
            return str(error)
        return ""

    def _shrink(self) -> None:
        """End the instances that came. EKS would choose the oldest, on which jobs may run."""
        end = time.monotonic() + GIVE_BACK_SECONDS
        while True:
            desired, ids = self.aws.instances()
            extra = len(ids) - self.before
            if desired <= self.before and (extra <= 0 or not self.before):
                return
            if not self.before or extra <= 0:
                self._resize(self.before)
            else:
                for each in self.aws.by_age(ids)[self.before :]:
                    self.aws.end(each)
            if time.monotonic() > end:
                raise AwsError(f"it has {plural(len(ids), 'node')}")
            time.sleep(LOOK_SECONDS)

    def _cancel(self) -> None:
        """Cancel the reservation, and those of interrupted runs of this command. Where none is known, look for a while:
        EC2 may list one late, or have made one without an answer."""
        for look in range(1 if self.held else 3):
            time.sleep(LOOK_SECONDS if look else 0)
            own = {each.id for each in self.aws.reservations() if not each.over and self._is_own(each)}
            for each in {*own, self.held} - {""}:
                self.aws.cancel(each)

    def _cancel_command(self, id_: str) -> str:
        return (
            f"aws ec2 cancel-capacity-reservation --region {self.aws.region} --capacity-reservation-id {id_ or 'cr-…'}"
        )

    def _persist(self, step: Callable[[], T], codes: tuple[str, ...] | None = None) -> T:
        """Return a step's result; do it again after an error (of these codes), for :data:`GIVE_BACK_SECONDS`."""
        end = time.monotonic() + GIVE_BACK_SECONDS
        while True:
            try:
                return step()
            except NotAllowedError:
                raise
            except AwsError as error:
                if time.monotonic() > end or (codes is not None and error.code not in codes):
                    raise
            time.sleep(LOOK_SECONDS)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
