"""Commands about images (``trn image``)."""

from trainium_eks.cli.images import build, mirror, push
from trainium_eks.cli.shared.command import App

app = App(help="The training image: build, push, mirror.", no_args_is_help=True)
for part in (build, push, mirror):
    app.add_typer(part.app)
