"""``trn predict``: submit the Job that predicts a file, and follow it."""

import sys
from dataclasses import dataclass

from trainium_eks.cli.jobs.serve.serving import ServingOptions, find, warn_of_no_nodes
from trainium_eks.cli.shared.output import write, write_json
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, INTERRUPTED, Failure, as_typed
from trainium_eks.client.notices import notice
from trainium_eks.client.session import Session, open_session
from trainium_eks.jobs.data.staging import DATA
from trainium_eks.jobs.objects import batch_jobs
from trainium_eks.jobs.serve import serving, serving_refusals
from trainium_eks.jobs.serve.serving import Batch
from trainium_eks.kube.api import ApiError
from trainium_eks.kube.pod_text import LINE_CHARACTERS, json_object, whole
from trainium_eks.model.validation.problems import Problem

SCHEMA_VERSION = 1
"""Version of the documents of ``--json``."""


@dataclass(frozen=True)
class Files:
    """Input and output of a prediction."""

    input: str
    output: str
    field: str = ""
    replace: bool = False

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return the problems of the options."""
        found = serving_refusals.path_problems("INPUT", self.input, serving_refusals.INPUTS)
        return (*found, *serving_refusals.path_problems("--to", self.output, serving_refusals.OUTPUTS))


def run(cluster: ClusterOptions, wanted: ServingOptions, files: Files, *, follow: bool, dry_run: bool) -> int:
    """Predict a file; return the exit code."""
    with open_session(cluster) as session:
        found = find(session, wanted, serving.PREDICT, files.problems)
        batch = Batch(
            found.name,
            found.model,
            serving_refusals.path_on_volume(files.input) or "",
            serving_refusals.path_on_volume(files.output) or "",
            found.image,
            found.place,
            found.queue,
            files.field,
            replace=files.replace,
        )
        job = serving.job(batch, session.namespace)
        if dry_run:
            write_json(job)
            return 0
        warn_of_no_nodes(session, found.place)
        try:
            batch_jobs.submit(session.api, job, ())
        except ApiError as error:
            raise Failure(FAILED, f"the Job is refused: {error}") from None
        return _follow(session, cluster, batch) if follow else _submitted(session, cluster, batch)


def _submitted(session: Session, cluster: ClusterOptions, batch: Batch) -> int:
    if cluster.as_json:
        _write_json(session, batch, {"state": "submitted"})
    else:
        write(as_typed(f"Job {batch.name} in {session.namespace.name}; trn logs {batch.name} follows it\n"))
    return 0


def _follow(session: Session, cluster: ClusterOptions, batch: Batch) -> int:
    shown = _Shown(is_silent=cluster.as_json)
    try:
        end = batch_jobs.follow(
            session.api,
            session.namespace.name,
            batch.name,
            serving.CONTAINER,
            line=shown.line,
            waiting=shown.waiting,
        )
    except KeyboardInterrupt:
        sys.stderr.write(as_typed(f"\nThe Job {batch.name} goes on; trn logs {batch.name} follows it\n"))
        return INTERRUPTED
    if cluster.as_json:
        state, message = ("complete" if end.succeeded else "failed"), "" if end.succeeded else shown.said or end.message
        _write_json(session, batch, {"state": state, "message": message, "rows": shown.rows})
    elif end.succeeded:
        write(f"{DATA}/{batch.output}: {shown.rows:,} predictions\n")
    else:
        raise Failure(FAILED, f"{DATA}/{batch.input} is not predicted: {shown.said or end.message}")
    return 0 if end.succeeded else FAILED


class _Shown:
    """Display of the Job's log on stderr."""

    def __init__(self, *, is_silent: bool) -> None:
        self._is_silent = is_silent
        self._waited = ""
        self.rows = 0
        self.said = ""
        """Last line of the log without a count."""

    def line(self, text: str) -> None:
        """Show one line of its log."""
        found = json_object(text)
        if found is not None and "predict" in found:
            self.rows = whole(found.get("rows")) or 0
            self._say(f"{self.rows:,} rows")
        elif text.strip():
            self.said = text.strip()[:LINE_CHARACTERS]
            self._say(self.said)

    def waiting(self, why: str) -> None:
        """Show the reason of a wait."""
        if why != self._waited:
            self._waited = why
            self._say(f"Waiting: {why}")

    def _say(self, text: str) -> None:
        if not self._is_silent:
            notice(text)


def _write_json(session: Session, batch: Batch, result: dict[str, object]) -> None:
    where = {"namespace": session.namespace.name, "job": batch.name, "output": f"{DATA}/{batch.output}"}
    write_json({"schemaVersion": SCHEMA_VERSION, **where, **result})
