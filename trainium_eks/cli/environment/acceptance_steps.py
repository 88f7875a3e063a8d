"""The steps of ``trn acceptance``: each calls commands of ``trn`` and judges their answers."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trainium_eks import whole_file
from trainium_eks.aws.sessions import client, saying
from trainium_eks.client.cluster_access import find_source, open_kubeconfig
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.jobs.watch.steps import parse_all
from trainium_eks.kube.api import Api
from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.validation.parsing import MISSHAPEN
from trainium_eks.model.validation.problems import plural
from trainium_eks.operate.acceptance.commands import Answer, Commands, findings
from trainium_eks.operate.acceptance.run import Step, StepError
from trainium_eks.plan import timeline
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.resource_types.rows import eks

KILLED, LOST, STALLED = "acceptance-killed", "acceptance-lost", "acceptance-stalled"
"""Names of the run's jobs."""

STEPS, STEPS_AFTER, STEP_SECONDS, SAVE_EVERY = 20_000, 20, 0.5, 5
"""Updates of an undisturbed training (longer than any step may take) and after its resume, the pause of each, and
the updates between two checkpoints."""

LOOK_SECONDS = 2.0
SETTLE_SECONDS = 300.0
"""Time for AWS' lists to forget deleted resources, and for what it makes after a deletion to appear."""
IMAGE_SECONDS = 600.0
"""Build of a training image by a Job in the cluster: an estimate, not measured on EKS."""
GANG_SECONDS = 120.0
"""Start of a gang, its training until a checkpoint is seen, its restart and its end."""
REPLACE_SECONDS = 600.0
"""Until an Auto Scaling group has replaced an instance that ended, and the node is ready: 5 to 10 minutes."""
STALL_SECONDS = 180.0
ALERT = "TrainingStalled"


@dataclass(frozen=True)
class Facts:
    """Facts of a recorded program that the steps need."""

    group: Mapping[str, Any]
    """The first node group with two nodes or more, as the outputs have it."""
    up_seconds: float
    node_seconds: float
    """Until a new node of the group is ready."""
    version: str
    """Kubernetes minor version."""
    has_logs: bool
    has_metrics: bool
    local: bool

    @property
    def nodes(self) -> int:
        """Return the number of nodes of the group."""
        return int(self.group["desiredSize"])


def facts(graph: Graph, *, local: bool) -> Facts:
    """Return the facts; CommandError for a program without a group of two nodes."""
    groups = [each for each in graph.outputs.get("nodeGroups") or () if (each.get("desiredSize") or 0) >= 2]
    if not groups:
        raise UsageError(
            f"{graph.stack} has no accelerator group with two nodes, and the run needs a gang of two: set "
            "`desiredSize: 2` of one (Pulumi.acceptance.yaml is an example)"
        )
    version = next((str(each.inputs.get("version")) for each in graph.of_type("aws:eks/cluster:Cluster")), "")
    kinds = {each.type.rpartition(":")[2] for each in graph.resources}
    return Facts(
        groups[0],
        timeline.model(graph).seconds,
        max(map(timeline.step_seconds, graph.of_type(eks.NODE_GROUP.token)), default=0.0),
        version,
        local or "LogShipping" in kinds,
        not local and "MetricsStack" in kinds,
        local,
    )


def steps(commands: Commands, known: Facts) -> list[Step]:
    """Return the steps of a run, in order."""
    do = _Acts(commands, known)
    alone = "the local cloud has no account" if known.local else ""
    no_logs = "" if known.has_logs else "`observability.logs` is not set"
    no_metrics = "the local cloud runs no Prometheus" if known.local else "`observability.metrics` is not set"
    no_alerts = "" if known.has_metrics else no_metrics
    first = ("plan",) if known.local else ("preflight",)
    gang, node, up, trained = GANG_SECONDS, known.node_seconds, ("up",), ("up", "image")
    lost = gang + (node if known.local else max(node, REPLACE_SECONDS))
    two = f"A gang of {known.nodes} nodes"
    there = known.nodes > int(known.group["minSize"]) or known.nodes < int(known.group["maxSize"])
    one_size = "" if there else f"minSize and maxSize of {known.group['name']} are the same"
    on, alone_do = do.with_doctor, do.alone
    return [
        Step("plan", "The config keeps every rule.", 10, alone_do(do.plan)),
        Step("preflight", "No check of the account fails.", 30, alone_do(do.preflight), ("plan",), alone),
        Step("up", "The environment is made.", known.up_seconds, alone_do(do.up), first, bills=True),
        Step("verification", "Nodes, devices, plugins, volumes and queues are as promised.", 60, on(do.verify), up),
        Step("image", "There is an image to train with.", IMAGE_SECONDS, on(do.image), up),
        Step("fabric", "Nodes, network and storage do what a training asks of them.", gang, on(do.fabric), trained),
        Step("training", f"{two} is killed and resumes from its checkpoint.", gang, on(do.training, KILLED), trained),
        Step("node", f"{two} loses a node, gets another, and resumes.", lost, on(do.node, LOST), trained),
        Step("logs", "Log lines of deleted pods are kept.", 60, on(do.logs), ("training",), no_logs),
        Step("stall", "A stalled training is reported.", STALL_SECONDS, on(do.stall, STALLED), trained),
        Step("alert", f"The alert {ALERT} fires for it.", STALL_SECONDS, on(do.alert, STALLED), ("stall",), no_alerts),
        Step("scale", "The group takes another size, and its own again.", node, on(do.scale), up, one_size),
        Step("again", "A second `up` would change nothing.", 60, on(do.again), up),
        Step("destroy", "Everything is deleted.", known.up_seconds, alone_do(do.destroy), closes=True),
        Step("leftovers", "Nothing that costs money is left.", 60, alone_do(do.leftovers), closes=True),
    ]  # fmt: skip


class _Acts:
    """The work of the steps."""

    def __init__(self, commands: Commands, known: Facts) -> None:
        self._commands = commands
        self._known = known

    def alone(self, act: Callable[[], str]) -> Callable[[float], str]:
        """Return a step's work, which ends at the time that it is given."""

        def work(until: float) -> str:
            self._commands.until = until
            return act()

        return work

    def with_doctor(self, act: Callable[[], str], job: str = "") -> Callable[[float], str]:
        """Return the same for a cluster that is up: the doctor adds findings about the job, or else about the
        environment, to a failure without findings."""

        def work(until: float) -> str:
            try:
                return self.alone(act)(until)
            except StepError as error:
                found = error.findings
                for subject in ((job,), ()) if job else ((),):
                    self._commands.until = time.time() + 120
                    found = found or tuple(findings(self._commands.ask("doctor", *subject)))
                raise StepError(str(error), found) from None

        return work

    def plan(self) -> str:
        answer = self._commands.run("plan", "--json")
        document = answer.document
        failed = [f"{each['id']} {each['title']}" for each in document.get("rules", ()) if each["status"] == "fail"]
        if failed or answer.code or "rules" not in document:
            raise StepError(f"`trn plan` ends with {answer.code}: {'; '.join(failed) or _problems(document)}")
        return f"{len(document['resources'])} resources, {len(document['rules'])} rules"

    def preflight(self) -> str:
        document = self._commands.ask("check")
        if not document.get("account"):
            raise StepError("there are no AWS credentials, or AWS does not take them")
        return self._judged(document, "check")

    def up(self) -> str:
        # The account was checked a step before.
        self._here("up", ("--yes", "--skip-preview", "--skip-check"))
        outputs = self._source().outputs
        if not self._known.local:
            whole_file.write(self._commands.outputs, outputs.model_dump_json(by_alias=True))
        return f"cluster {outputs.cluster_name}, queues {', '.join(outputs.queue_names)}"

    def verify(self) -> str:
        return self._judged(self._commands.ask("doctor", "--wait", "15" if self._known.local else "300"), "doctor")

    def image(self) -> str:
        words = ("local", "images", "make", "torch") if self._known.local else ("image", "push", "--in-cluster")
        answer = self._commands.must(*words, of_stack=not self._known.local)
        return answer.output.strip().rpartition("\n")[2]

    def fabric(self) -> str:
        # Without EFA there is no network to test, and a rank for each device does not leave its node.
        has_efa = any("efa" in name for name in self._known.group["resources"])
        nodes = self._known.nodes if has_efa else 1
        asked = ("fabric", "--group", str(self._known.group["name"]), "--nodes", str(nodes))
        answer = self._commands.run(*asked, "--json")
        groups = answer.document.get("groups")
        if not groups:
            raise StepError(f"the test was not made: {_problems(answer.document) or answer.complaint}")
        failed = [finding for group in groups for finding in findings(group)]
        if failed or answer.code:
            raise StepError(f"{plural(len(failed), 'check')} failed", failed)
        return ", ".join(each["subject"] for group in groups for each in group["findings"] if each["status"] == "pass")

    def training(self) -> str:
        return self._survives(KILLED, self._kill)

    def node(self) -> str:
        seen = self._survives(LOST, self._lose_node)
        self._commands.run("cancel", LOST)
        return seen

    def logs(self) -> str:
        """Delete the killed job with its pods; the lines before the kill are asked of the log store alone."""
        self._commands.run("cancel", KILLED)
        found = Answer(0, "", "")
        shown_within = 10 if self._known.local else 240  # CloudWatch shows lines some time after they were written
        for _ in _looks(min(self._commands.until, time.time() + shown_within)):
            found = self._commands.run("logs", KILLED, "--since", "6h")
            numbers = [each.number for each in parse_all(found.output.splitlines())]
            resumed = _resumed_steps(found.output)
            if resumed and numbers and numbers[0] == 1 and numbers[-1] == resumed[-1] + STEPS_AFTER:
                return f"{len(numbers)} step lines of both starts, from step 1 to {numbers[-1]}"
        lines = f"{len(found.output.splitlines())} lines"
        raise StepError(f"{lines} are kept, without both starts of the job: {found.complaint}".rstrip(": "))

    def stall(self) -> str:
        self._begin(STALLED, "--grace", "5", each_save="86400")
        began = time.time()
        for _ in _looks(self._commands.until):
            progress = self._commands.ask("status", STALLED).get("progress") or {}
            if progress.get("stalled"):
                break
        else:
            raise StepError("`trn status` does not call it stalled")
        if not self._known.has_metrics:
            self._commands.run("cancel", STALLED)
        return (
            f"noticed {time.time() - began:.0f} s after the start, {progress['quietSeconds']:.0f} s after its last step"
        )

    def alert(self) -> str:
        began, alerts = time.time(), list[Mapping[str, Any]]()
        for _ in _looks(self._commands.until):
            alerts = self._commands.ask("doctor", "--alerts").get("alerts", [])
            for each in alerts:
                if (each["name"], each["state"], each["labels"].get("job_name")) == (ALERT, "firing", STALLED):
                    self._commands.run("cancel", STALLED)
                    return f"it fires {time.time() - began:.0f} s after `trn status` noticed"
        others = ", ".join(sorted({each["name"] for each in alerts})) or "none"
        raise StepError(f"it does not fire; other alerts: {others}")

    def scale(self) -> str:
        group, nodes = self._known.group, self._known.nodes
        other = nodes - 1 if nodes > int(group["minSize"]) else nodes + 1
        for size in (other, nodes):
            self._commands.must("scale", str(group["name"]), str(size))
        return f"{nodes} to {plural(other, 'node')}, and back"

    def again(self) -> str:
        answer = self._here("up" if self._known.local else "preview", ("--expect-no-changes",))
        if self._known.local and "Nothing has changed" not in answer.output:
            raise StepError(f"it changed something: {answer.complaint}")
        return "nothing has changed" if self._known.local else "the preview expects no change"

    def destroy(self) -> str:
        self._here("destroy", ("--yes", "--no-export"))
        self._commands.outputs.unlink(missing_ok=True)
        return ""

    def leftovers(self) -> str:
        """Search the account until only resources are found that a destroy keeps on purpose. AWS' lists name deleted
        resources for minutes; resources that AWS leaves, or makes anew, by a known race are removed and reported."""
        if self._known.local:
            answer = self._commands.must("local", "down")
            if "Nothing of" not in answer.output:
                raise StepError(f"something was left: {answer.output.strip()}")
            return "no process, no directory"
        removed, until = list[str](), min(self._commands.until - 60, time.time() + SETTLE_SECONDS)
        while True:
            document = self._commands.ask("orphans")
            found = findings(document)
            kept = [each for each in found if str(each.get("note", "")).startswith("kept on purpose")]
            lost = [each for each in found if each not in kept]
            unseen = [each["subject"] for each in document["findings"] if each["status"] == "not checked"]
            if not lost and not unseen:
                seen = f"kept on purpose: {', '.join(sorted({str(each.get('kind')) for each in kept})) or 'nothing'}"
                return "; ".join([seen, *dict.fromkeys(removed)])
            if time.time() >= until:
                raise StepError(
                    f"{plural(len(lost), 'resource')} left; not looked at: {', '.join(unseen) or 'none'}", lost
                )
            for each in lost:
                if race := each.get("race"):
                    self._commands.remove(each["commands"])
                    removed.append(f"{each['kind']} removed: {race}")
            time.sleep(LOOK_SECONDS * 5)

    # --- Gangs ------------------------------------------------------------------------------------------------------

    def _begin(self, job: str, *options: str, each_save: str = "0") -> None:
        """Submit a gang on all nodes of the group; a job that an interrupted step left is ended first. The ranks add
        on the CPU, so that the cheapest types do, too."""
        self._commands.run("cancel", job)
        asked = ("--example", "gradient-sum", "--name", job, "--detach", "--group", str(self._known.group["name"]))
        length = ("--steps", str(STEPS), "--step-seconds", str(STEP_SECONDS), "--checkpoint-every", str(SAVE_EVERY))
        nodes = ("--nodes", str(self._known.nodes), "--ranks-per-node", "1", "--backend", "cpu", *options)
        self._commands.must(
            "train",
            *asked,
            *nodes,
            after=(*length, "--steps-after-resume", str(STEPS_AFTER), "--save-seconds", each_save),
        )

    def _survives(self, job: str, harm: Callable[[str], str]) -> str:
        """Train with a gang, do it harm once a checkpoint is there, and await its end, which comes
        :data:`STEPS_AFTER` updates after the resume and not before; return the observations."""
        self._begin(job)
        at = self._saved_step(job)
        what = harm(job)
        waited = self._commands.run("wait", job, "--timeout", f"{max(int(self._commands.until - time.time()), 1)}s")
        if waited.code:
            raise StepError(f"after {what}: {waited.output.strip() or waited.complaint}")
        status = self._commands.ask("status", job)
        restarts = status["job"].get("restarts", 0)
        resumed = _resumed_steps(self._commands.run("logs", job).output)
        if not restarts or not resumed:
            raise StepError(f"after {what} it ended, {restarts} restarts, without going on from a checkpoint")
        end = resumed[-1] + STEPS_AFTER
        return f"{what} after the checkpoint of step {at}; restarted, resumed from step {resumed[-1]}, ended at {end}"

    def _saved_step(self, job: str) -> int:
        """Return the step of the first checkpoint, once it is there."""
        for _ in _looks(self._commands.until):
            status = self._commands.ask("status", job)
            saved = (status.get("progress") or {}).get("checkpointStep")
            if saved:
                return int(saved)
            if (status.get("job") or {}).get("ended"):
                raise StepError("the job ended before its first checkpoint")
        raise StepError("no checkpoint was made")

    def _kill(self, job: str) -> str:
        """Delete the pod of the last rank without a grace period: its processes get SIGKILL."""
        with self._api() as api:
            pod = self._pods(api, job)[-1]
            path = api.kind("v1", "Pod").path(pod["metadata"]["namespace"], pod["metadata"]["name"])
            api.request("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
        return "a pod was killed"

    def _lose_node(self, job: str) -> str:
        """End the node of the last rank: its instance, which the Auto Scaling group replaces. On the local cloud the
        node's object is deleted, and `trn scale` makes another, as no group of EC2 does."""
        with self._api() as api:
            name = self._pods(api, job)[-1]["spec"]["nodeName"]
            path = api.kind("v1", "Node").path("", name)
            instance = str(api.request("GET", path)["spec"].get("providerID", "")).rpartition("/")[2]
            if self._known.local:
                api.request("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions"})
        if self._known.local:
            self._commands.must("scale", str(self._known.group["name"]), str(self._known.nodes))
        else:
            with _as_step(), saying(f"end the instance {instance}"):
                client("ec2", self._source().outputs.region).terminate_instances(InstanceIds=[instance])
        return "a node was lost"

    def _pods(self, api: Api, job: str) -> list[dict[str, Any]]:
        namespace = self._source().outputs.namespaces[0].name
        found = api.list("v1", "Pod", namespace=namespace, labels=f"volcano.sh/job-name={job}")
        bound = [each for each in found if each["spec"].get("nodeName")]
        if not bound:
            raise StepError("no pod of it is on a node")
        return sorted(bound, key=lambda pod: str(pod["metadata"]["name"]))

    # --- The cluster ------------------------------------------------------------------------------------------------

    def _here(self, operation: str, options: tuple[str, ...]) -> Answer:
        """Run an operation of ``trn deploy``, or of the local cloud, which has no options."""
        if self._known.local:
            return self._commands.must("local", {"destroy": "down"}.get(operation, operation))
        return self._commands.must("deploy", operation, after=options)

    def _source(self) -> Any:
        kept = self._commands.outputs
        return find_source(self._commands.stack, kept if kept.is_file() else None, None, self._commands.project)

    @contextmanager
    def _api(self) -> Iterator[Api]:
        with _as_step(), open_kubeconfig(self._source()) as file:
            yield Api.connect(file)

    def _judged(self, document: Mapping[str, Any], command: str) -> str:
        if failed := findings(document):
            raise StepError(f"`trn {command}` finds {plural(len(failed), 'fault')}", failed)
        counts = document.get("summary") or {}
        if not counts.get("pass"):
            raise StepError(f"`trn {command}` judged nothing: {_problems(document)}".rstrip(": "))
        return ", ".join(f"{number} {status}" for status, number in counts.items() if number)


def _resumed_steps(log: str) -> list[int]:
    """Return the steps from which a job's log says that it resumed."""
    return [int(each) for each in re.findall(r"resumed from step (\d+)", log)]


def _looks(until: float) -> Iterator[None]:
    """Yield at intervals until the time is up."""
    while time.time() < until:
        yield
        time.sleep(LOOK_SECONDS)


def _problems(document: Mapping[str, Any]) -> str:
    """Return the reasons of a failure that a command with ``--json`` printed; empty without any."""
    return "; ".join(str(each.get("reason", "")) for each in document.get("problems", ()))


@contextmanager
def _as_step() -> Iterator[None]:
    """Turn errors of the cluster and of AWS into the step's."""
    try:
        yield
    except (ClusterError, CommandError, *MISSHAPEN) as error:
        raise StepError(str(error)) from None
