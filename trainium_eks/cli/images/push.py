"""``trn image push``: the training image in the stack's repository."""

from trainium_eks.cli.images import building
from trainium_eks.cli.images import in_cluster as jobs
from trainium_eks.cli.images.options import ImageOptions, InCluster
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import CommandError

app = App()


@app.command(example="trn image push --for trn1")
@with_cluster_options
def push(options: ImageOptions, in_cluster: InCluster = False, *, cluster: ClusterOptions) -> None:
    """Bring the training image to the stack's repository; built first if need be, and nothing if it is there.

    Exit code: 0; 1 when it cannot be built or pushed; 2 for wrong usage.
    """
    planned = building.plan(options, cluster)
    digest = planned.repository.digest(planned.tag)
    if digest:
        if options.tag:
            raise CommandError(
                f"{planned.reference} is there already ({digest}), and tags of this repository never move: "
                "choose another --tag, or leave it out, for then it follows from the content",
            )
        building.report(cluster, planned.reference, "is there already", digest)
        return
    if in_cluster:
        jobs.build(cluster, planned)
    else:
        with building.opened_engine(options.engine) as engine:
            building.build(engine, planned)
            engine.login(planned.repository.login())
            engine.push(planned.reference)
    building.report(cluster, planned.reference, "pushed", planned.repository.digest(planned.tag))
