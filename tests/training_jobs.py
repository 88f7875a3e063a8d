"""Training jobs for tests."""

from dataclasses import fields, replace

from trainium_eks.jobs.objects import resources
from trainium_eks.jobs.objects.job import Program, TrainingJob
from trainium_eks.jobs.objects.options import TrainOptions
from trainium_eks.model.catalogue.backends import backend_of
from trainium_eks.model.catalogue.instances import CATALOGUE


def job(instance_type="trn1.32xlarge", **changes):
    """Return the BERT pre-training of two nodes with changes: fields of the job, others of its options."""
    instance = CATALOGUE.find(instance_type)
    made = TrainingJob(
        name="bert-x7k2f",
        app="bert",
        program=Program("train.py", arguments=("--batch_size", "16", "--note", "it's $5")),
        image="repo/train:1",
        instance=instance,
        resources=resources.whole_node(instance),
        nodes=2,
        ranks_per_node=resources.allowed_ranks(instance)[-1],
        backend=backend_of(instance),
        claim="fsx-claim",
        namespace="training",
        queue="test",
        service_account="training",
    )
    own = {each.name for each in fields(TrainingJob)}
    asked = {name: changes.pop(name) for name in [*changes] if name not in own}
    return replace(made, **{"options": TrainOptions(**asked), **changes})
