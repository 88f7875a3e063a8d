"""``trn train --on sagemaker``: the same script and image as a SageMaker training job."""

import sys
from typing import Any

from trainium_eks.cli.jobs.watch import sagemaker_watch
from trainium_eks.cli.shared.output import write, write_json
from trainium_eks.client import train_facts
from trainium_eks.client.cluster_access import find_stack
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure, as_typed
from trainium_eks.client.session import find_namespace
from trainium_eks.client.train_request import request_of, taken
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.jobs.sagemaker import job as sagemaker_job
from trainium_eks.jobs.sagemaker.job import SageMakerJob
from trainium_eks.jobs.sagemaker.request import launch_script, training_request
from trainium_eks.jobs.sagemaker.service import SageMakerJobs, SageMakerWork
from trainium_eks.model.outputs import StackOutputs
from trainium_eks.plan.graph import SCHEMA_VERSION


def run(asked: TrainOptions, cluster: ClusterOptions) -> int:
    """Submit the job, and follow it unless it is detached; return the exit code. Needs no cluster, only the outputs.

    Raises:
        Failure: with all problems of the options, or on a local cloud.
        ClusterError: AWS refuses.
    """
    asked = taken(asked)
    source = find_stack(cluster.stack, cluster.outputs, cluster.directory)
    if source.paths is not None:
        raise Failure(WRONG_USAGE, "the local cloud has no SageMaker; --stack names a stack on AWS")
    outputs = source.outputs
    namespace = find_namespace(outputs, cluster.namespace, cluster.outputs)
    request, workspace, wrong = request_of(asked)
    image, no_image, _ = train_facts.registry_image(asked.image, outputs)
    unique = train_facts.unique()
    made = sagemaker_job.plan(request, outputs, namespace, image, unique)
    found = [each for each in (wrong, no_image) if each is not None]
    problems = [*found, *(made if isinstance(made, tuple) else ())]
    if problems or isinstance(made, tuple):
        raise Failure(WRONG_USAGE, "the job was not submitted", problems, spell=str)
    if asked.dry_run:
        return _show(made, cluster)
    return _submit(made, workspace.archive if workspace else "", asked, cluster, outputs)


def _show(made: SageMakerJob, cluster: ClusterOptions) -> int:
    request, script = training_request(made), launch_script(made)
    if cluster.as_json:
        write_json({"schemaVersion": SCHEMA_VERSION, "request": request, "script": script})
        return 0
    import yaml

    write(yaml.safe_dump(request, sort_keys=False, width=1000) + "# The script of its containers:\n" + script)
    return 0


def _submit(
    made: SageMakerJob, archive: str, asked: TrainOptions, cluster: ClusterOptions, outputs: StackOutputs
) -> int:
    jobs = SageMakerJobs(outputs.region, made.where, made.job.namespace)
    jobs.submit(made, archive)
    name = made.job.name
    if not cluster.as_json:
        _say(as_typed(_submitted(made)))
    if not (asked.detach or asked.wait or cluster.as_json):
        return sagemaker_watch.follow(jobs, name, 0, cluster)
    ended = sagemaker_watch.wait(jobs, name) if asked.wait and not asked.detach else None
    if cluster.as_json:
        write_json(_document(made, ended))
    elif ended is not None:
        _say(f"The job {name} is {ended.state}.{f' {ended.reason}' if ended.reason else ''}")
    return 0 if ended is None or ended.state == "Completed" else FAILED


def _document(made: SageMakerJob, ended: SageMakerWork | None) -> dict[str, Any]:
    job = made.job
    return {
        "schemaVersion": SCHEMA_VERSION,
        "job": job.name,
        "kind": "sagemaker",
        "namespace": job.namespace,
        "instanceType": made.instance_type,
        "nodes": job.nodes,
        "worldSize": job.world_size,
        "image": job.image,
        "backend": job.backend,
        "output": made.uri("output"),
        "checkpoints": made.uri("checkpoints"),
        "state": ended.state if ended else None,
    }


def _submitted(made: SageMakerJob) -> str:
    job = made.job
    spot = " on Spot" if made.spot else ""
    return "\n".join(
        [
            f"Submitted {job.name}: {job.program} on {job.nodes} x {made.instance_type}{spot}, "
            f"{job.ranks_per_node} ranks each.",
            f"  Model: {made.uri('output', job.name)}",
            f"  Checkpoints: {made.uri('checkpoints')}",
            f"  Watch: trn jobs · trn logs {job.name} -f",
        ]
    )


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
