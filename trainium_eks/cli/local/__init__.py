"""Commands of the local cloud (``trn local``)."""

from trainium_eks.cli.local import down, exec_, images, kubectl, logs, up
from trainium_eks.cli.shared.command import App

app = App(help="The whole stack on this machine: a real Kubernetes, a simulated AWS.", no_args_is_help=True)
for part in (up, down, kubectl, logs, exec_):
    app.add_typer(part.app)
app.add_typer(images.app, name="images", invoke_without_command=True)
