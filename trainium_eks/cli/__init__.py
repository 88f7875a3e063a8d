"""The ``trn`` command."""


def main() -> None:
    """Run the ``trn`` command line. The commands are imported here, so that importing this package costs nothing."""
    from trainium_eks.cli.app import app

    app(prog_name="trn")
