"""SageMaker's jobs of a team in a table of all jobs. A stack without SageMaker imports only this module for it."""

import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from trainium_eks.client.notices import notice
from trainium_eks.client.session import Session
from trainium_eks.kube.errors import ClusterError

if TYPE_CHECKING:
    from trainium_eks.jobs.sagemaker.service import SageMakerJobs, SageMakerWork

LISTED_DAYS = 30
"""Age up to which all jobs are listed: SageMaker keeps them for ever."""

LIST_SECONDS = 15.0
"""Seconds between two lists of jobs in a live view."""


def jobs_of(session: Session) -> "SageMakerJobs | None":
    """Return the service of the session's namespace; None for a stack without SageMaker, or a local cloud."""
    where = session.outputs.sage_maker
    if where is None or session.is_local:
        return None
    from trainium_eks.jobs.sagemaker.service import SageMakerJobs

    return SageMakerJobs(session.outputs.region, where, session.namespace.name)


class ListedJobs:
    """The jobs of SageMaker in a table of all jobs, read again every :data:`LIST_SECONDS`; ended ones up to an age."""

    def __init__(self, session: Session, age: timedelta) -> None:
        self._jobs, self._age = jobs_of(session), age
        self._read = -LIST_SECONDS
        self._found: list[SageMakerWork] = []

    def at(self, now: datetime) -> "list[SageMakerWork]":
        """Return running jobs and jobs that ended recently. If AWS does not answer, print a notice: the cluster's
        jobs are shown all the same."""
        if self._jobs is not None and time.monotonic() - self._read >= LIST_SECONDS:
            self._read = time.monotonic()
            try:
                self._found = [*self._jobs.jobs(now - self._age), *self._jobs.endpoints()]
            except ClusterError as error:
                notice(f"SageMaker's jobs are not shown: {error}")
        return self._found
