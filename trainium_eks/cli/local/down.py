"""``trn local down``: the stack, taken off this machine."""

from trainium_eks.cli.local.target import paths_of
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.options import Directory, NoColor, Stack
from trainium_eks.cli.shared.output import write
from trainium_eks.local import deployment

app = App(otherwise="local")


@app.command(example="trn local down")
def down(stack: Stack = "", no_color: NoColor = False, directory: Directory = None) -> None:
    """Stop the stack's processes and remove everything that belongs to it; cached programs and charts stay."""
    del no_color  # nothing here has one
    paths = paths_of(stack, directory)
    there = paths.root.exists()
    ended = deployment.down(paths, stack)
    if not there and not ended:
        write(f"Nothing of {stack} is on this machine.\n")
        return
    what = f"Stopped {', '.join(ended)}. " if ended else "No process was running. "
    write(f"{what}Removed {paths.root}. Cached programs and charts stay.\n")
