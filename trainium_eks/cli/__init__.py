"""The ``trn`` command."""

import sys


def main() -> None:
    """Run the ``trn`` command line. The commands are imported here, so that importing this package costs nothing."""
    try:
        from trainium_eks.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.stderr.write(f"the Python package {error.name} is missing: pip install 'trainium-eks[cli]' brings trn\n")
        sys.exit(2)
    app(prog_name="trn")
