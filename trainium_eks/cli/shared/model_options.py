"""Options of the commands that let a trained model answer."""

from typing import Annotated

import typer

from trainium_eks.jobs.objects.options import Service

MODEL = "A job of `trn train`, or a model's directory on the team's volume; on SageMaker, s3://…/model.tar.gz."

On = Annotated[
    Service, typer.Option("--on", metavar="eks|sagemaker", help="Service that runs the model; docs/sagemaker.md.")
]
Group = Annotated[str | None, typer.Option("--group", help="Node group with accelerators; default: the CPU pool.")]
InstanceType = Annotated[
    str | None, typer.Option("--instance-type", help="EC2 type, in place of --group; SageMaker's type.")
]
Devices = Annotated[
    int | None, typer.Option("--devices", min=1, help="Devices of a pod, with --group; default: 1, or a whole node.")
]
Image = Annotated[str | None, typer.Option("--image", help="Container image; default: the one `trn train` uses.")]
Queue = Annotated[str | None, typer.Option("--queue", help="Queue of accelerator pods; default: the namespace's.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the objects and create nothing.")]
