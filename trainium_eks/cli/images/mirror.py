"""``trn image mirror``: somebody's image into the stack's repository."""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from trainium_eks.aws.ecr import Repository
from trainium_eks.cli.images.image import bring, opened_engine, outputs_of, report, repository_of
from trainium_eks.cli.shared.cluster_options import ClusterOptions
from trainium_eks.cli.shared.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.cli.shared.session import run_and_report
from trainium_eks.jobs.images import images
from trainium_eks.jobs.images.engines import Runner
from trainium_eks.jobs.images.image_jobs import docker_config
from trainium_eks.model.catalogue.training_images import reference_problems


@dataclass(frozen=True)
class MirrorOptions:
    """What was asked for."""

    cluster: ClusterOptions
    source: str
    tag: str | None = None
    engine: str | None = None
    """None for the registries' own protocol, without an engine."""
    in_cluster: bool = False


def mirror(options: MirrorOptions, runner: Runner | None = None) -> int:
    """Copies the image; the exit code."""
    return run_and_report(lambda: _mirror(options, runner), as_json=options.cluster.as_json)


def _mirror(options: MirrorOptions, runner: Runner | None) -> int:
    repository = repository_of(outputs_of(options.cluster))
    found = reference_problems(options.source, "SOURCE")
    problem = images.tag_problem(options.tag) if options.tag is not None else None
    if problem:
        found.append(problem)
    if found:
        raise Failure(WRONG_USAGE, "the image cannot be copied", found, spell=str)
    tag = options.tag or images.mirror_tag(options.source)
    reference = f"{repository.url}:{tag}"
    digest = repository.digest(tag)
    if digest:
        return report(options.cluster, reference, "is there already", digest)
    if options.in_cluster:
        from trainium_eks.cli.images import cluster_builds

        cluster_builds.mirror(options.cluster, repository, options.source, reference)
    elif options.engine is not None:
        with opened_engine(options.engine, runner) as engine:
            engine.pull(options.source)
            engine.tag(options.source, reference)
            bring(engine, repository, reference)
    else:
        _copy(options, repository, reference)
    return report(options.cluster, reference, "copied", repository.digest(tag))


def _copy(options: MirrorOptions, repository: Repository, reference: str) -> None:
    """By the copier that runs in the cluster, too, as a process of this machine."""
    from trainium_eks.cli.jobs.data.render_stage import shown_progress
    from trainium_eks.local.images.images import workloads

    with tempfile.TemporaryDirectory(prefix="trn-login-") as directory:
        logins = Path(directory, "config.json")
        logins.touch(mode=0o600)
        logins.write_text(docker_config(repository.login()), encoding="utf-8")
        argv = [sys.executable, "-m", "trainium_workloads.mirror", options.source, reference, "--logins", str(logins)]
        environment = {**os.environ, "PYTHONPATH": str(workloads())}
        with (
            shown_progress(no_color=options.cluster.no_color) as shown,
            subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                shown.line(line.rstrip("\n"))
    if process.returncode:
        why = str(shown.last.get("message") or f"the copier ended with code {process.returncode}")
        again = "; the same command goes on from there" if shown.last.get("stage") == "interrupted" else ""
        raise Failure(FAILED, f"{options.source} is not copied: {why}{again}")
