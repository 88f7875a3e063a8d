"""``trn train``: its options. The work is in :mod:`.training`, which is imported when a job is asked for: the help
needs none of it."""

from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import with_cluster_options
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.jobs.objects.options import TrainOptions

app = App()


@app.command(example="trn train --example gradient-sum --nodes 2")
@with_cluster_options
def train(options: TrainOptions, *, cluster: ClusterOptions) -> None:
    """Train on a gang of whole nodes: all start together, restart together, end together.

    Prints rank 0's log until the job ends. Ctrl-C leaves the job running, as --detach does. With --precompile a short
    run of the training (give the script few steps) fills a compile cache, which `trn train` then finds whole.

    Exit code: 0; 1 when it was refused or did not end well; 2 for a job that cannot run.
    """
    from trainium_eks.cli.jobs import training

    training.train(options, cluster)
