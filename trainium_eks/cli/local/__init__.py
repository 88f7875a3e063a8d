"""Commands of the local cloud (``trn local``)."""

from trainium_eks.cli.shared.command import Entry, LazyGroup

app = LazyGroup(
    entries={
        "up": Entry("local.up", "Start Kubernetes here and deploy the stack's program to it."),
        "down": Entry("local.down", "Stop the stack's processes and remove everything of it."),
        "kubectl": Entry("local.kubectl", "Run kubectl against the local cluster."),
        "logs": Entry("local.logs", "Show the log of a process of the local cloud."),
        "exec": Entry("local.exec_", "Run a command in a pod that runs on this machine."),
        "images": Entry("local.images", "List, make and remove the images that local pods run in."),
    },
    help="The whole stack on this machine: a real Kubernetes, a simulated AWS.",
    no_args_is_help=True,
)
