"""The ``trn`` command."""


def main() -> None:
    """Entry point. What the command needs is imported only now, so that importing this package costs nothing."""
    from trainium_eks.cli.app import app

    app(prog_name="trn")
