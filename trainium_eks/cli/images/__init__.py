"""Commands about images (``trn image``)."""

from trainium_eks.cli.shared.command import Entry, LazyGroup

app = LazyGroup(
    entries={
        "build": Entry("images.build", "Build the training image on this machine."),
        "push": Entry("images.push", "Bring the training image to the stack's repository."),
    },
    help="The training image: build and push it.",
    no_args_is_help=True,
)
