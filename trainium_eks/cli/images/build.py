"""``trn image build``: the training image, built on this machine."""

from trainium_eks.cli.images import building
from trainium_eks.cli.images.options import ImageOptions
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.with_cluster_options import cluster_options_without
from trainium_eks.client.cluster_options import ClusterOptions

app = App()


@app.command(example="trn image build --for trn1")
@cluster_options_without("namespace", "kubeconfig", "no_color")
def build(options: ImageOptions, *, cluster: ClusterOptions) -> None:
    """Build the training image here: a framework's image by the stack's instance type, and trainium_workloads.

    The tag follows from the image's contents, so an image is built only once.

    Exit code: 0; 1 when it cannot be built; 2 for wrong usage.
    """
    planned = building.plan(options, cluster)
    with building.opened_engine(options.engine) as engine:
        did = building.build(engine, planned)
    building.report(cluster, planned.reference, "built" if did else "was built already")
