"""``trn wait``: the end of a job, awaited without its log."""

from trainium_eks.cli.jobs.watch import sagemaker_watch
from trainium_eks.cli.shared import output
from trainium_eks.client import reading, submitting
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.client.session import Session
from trainium_eks.client.team import AWAY_SECONDS
from trainium_eks.jobs.watch.log_lines import seconds


def run(cluster: ClusterOptions, name: str, timeout: str | None) -> int:
    """Wait for a job's end; return the exit code: 0 when it has completed.

    Args:
        cluster: options of the command.
        name: of the job.
        timeout: longest wait, such as ``90s`` or ``2h``; None for no limit.
    """

    def work(session: Session) -> int:
        longest = seconds(timeout) if timeout is not None else None
        if timeout is not None and longest is None:
            raise Failure(WRONG_USAGE, f"--timeout {timeout}: give a duration: 90s, 10m or 2h")
        try:
            state = _state_at_end(session, name, longest)
        except TimeoutError as error:
            from trainium_eks.cli.environment.check import examine

            raise examine.with_closing(Failure(FAILED, str(error)), cluster, session.namespace.name, name) from None
        if cluster.as_json:
            output.write_json({"schemaVersion": reading.SCHEMA_VERSION, "job": name, "state": state})
        else:
            output.write(f"The job {name} is {state}.\n")
        return 0 if state == submitting.SUCCEEDED else FAILED

    return reading.run(cluster, work)


def _state_at_end(session: Session, name: str, longest: float | None) -> str:
    managed = sagemaker_watch.find(session, name)
    if managed is not None:
        return sagemaker_watch.wait(managed[0], name, longest).state
    reference = session.api.reference(reading.find(session, name).source)
    return submitting.wait(reference, session, timeout_seconds=longest, away_seconds=AWAY_SECONDS)
