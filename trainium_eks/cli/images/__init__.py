"""Commands about images (``trn image``)."""

from trainium_eks.cli.images import build, push
from trainium_eks.cli.shared.command import App

app = App(help="The training image: build and push it.", no_args_is_help=True)
for part in (build, push):
    app.add_typer(part.app)
