"""SageMaker as the target of a submission. Apart from the jobs that are there: with it comes all of planning, which
takes as long to import as half a `trn jobs`."""

from dataclasses import dataclass

from trainium_eks.client import train_facts
from trainium_eks.client.cluster_access import find_stack
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import UsageError
from trainium_eks.client.sagemaker import ManagedJob
from trainium_eks.client.session import find_namespace
from trainium_eks.client.submitting import read_options, request_of
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.jobs.sagemaker import job as sagemaker_job
from trainium_eks.jobs.sagemaker.job import SageMakerJob
from trainium_eks.jobs.sagemaker.service import SageMakerJobs
from trainium_eks.model.outputs import NamespaceOutput, StackOutputs


def stack_of(cluster: ClusterOptions) -> tuple[StackOutputs, NamespaceOutput]:
    """Return the outputs of a stack on AWS, and the team's namespace."""
    source = find_stack(cluster.stack, cluster.outputs, cluster.directory)
    if source.paths is not None:
        raise UsageError("the local cloud has no SageMaker; --stack names a stack on AWS")
    return source.outputs, find_namespace(source.outputs, cluster.namespace, cluster.outputs)


@dataclass(frozen=True)
class SageMakerSubmission:
    """A training job that can be submitted to SageMaker, with the archive of its files; empty for none."""

    made: SageMakerJob
    archive: str


class SageMakerTarget:
    """SageMaker, in the account of a stack on AWS; needs no way to the cluster."""

    def __init__(self, cluster: ClusterOptions) -> None:
        self._outputs, self._namespace = stack_of(cluster)

    def plan(self, options: TrainOptions) -> SageMakerSubmission:
        """Return the job of the options, as :meth:`Team.plan`."""
        options = read_options(options)
        request, workspace, wrong = request_of(options)
        image, no_image, _ = train_facts.registry_image(options.image, self._outputs)
        made = sagemaker_job.plan(request, self._outputs, self._namespace, image, train_facts.unique())
        problems = [*filter(None, (wrong, no_image)), *(made if isinstance(made, tuple) else ())]
        if problems or isinstance(made, tuple):
            raise UsageError("the job was not submitted", problems, spell=str)
        return SageMakerSubmission(made, workspace.archive if workspace else "")

    def create(self, submission: SageMakerSubmission) -> ManagedJob:
        """Submit the job."""
        made = submission.made
        service = SageMakerJobs(self._outputs.region, made.where, made.job.namespace)
        service.submit(made, submission.archive)
        return ManagedJob(service, made.job.name)
