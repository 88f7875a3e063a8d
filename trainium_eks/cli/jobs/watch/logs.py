"""``trn logs``: the output of a job's ranks, once or as it comes."""

import heapq

from trainium_eks.cli.jobs.watch import kept_logs, sagemaker_watch
from trainium_eks.cli.jobs.watch.live_logs import Printer, complain, follow
from trainium_eks.client import reading
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, Failure
from trainium_eks.client.logs import LogOptions, PodFilter, choose, has_begun, no_log, read_all, targets
from trainium_eks.client.session import Session
from trainium_eks.jobs.explain.watched import WatchedJob


def run(cluster: ClusterOptions, name: str, options: LogOptions) -> int:
    """Show the logs of a job; return the exit code: 0 after showing them, or with ``follow`` only when the job
    succeeds."""

    def work(session: Session) -> int:
        managed = sagemaker_watch.find(session, name)
        if managed is not None:
            return sagemaker_watch.logs(*managed, options, cluster)
        if options.since is not None and not options.follow and not options.previous:
            return kept_logs.run(session, cluster, name, options)
        found = reading.jobs(session)
        job = reading.named(found, name)
        if job is None:
            failure = reading.no_such(session, name, found)
            offer = f". What a removed job wrote: trn logs {name} --since 24h" if reading.keeps(session) else ""
            raise Failure(failure.code, f"{failure.title}{offer}")
        wanted = choose(job, options)
        printer = Printer(cluster, wanted, timestamps=options.timestamps)
        if options.follow:
            return follow(session, job, wanted, printer)
        return _once(session, job, wanted, printer)

    return reading.run(cluster, work)


def _once(session: Session, job: WatchedJob, wanted: PodFilter, printer: Printer) -> int:
    there = reading.pods_of(session, job)
    chosen = targets(there, wanted)
    pods = [pod for pod in chosen if has_begun(pod)]
    if not pods:
        raise Failure(FAILED, no_log(session, job, chosen, there))
    answers, troubles = read_all(session, wanted, pods)
    lines = heapq.merge(*answers, key=lambda each: each.line.stamp)
    printer.write(each for each in lines if each.line.is_of(wanted.local_rank))
    if troubles and not any(answers):
        raise Failure(FAILED, troubles[0])
    complain(troubles)
    return 0
