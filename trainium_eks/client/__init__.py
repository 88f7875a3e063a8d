"""A researcher's way to a stack: its session, and a job from its options to its end. Python programs use :mod:`.team`;
the command line is built on the same modules."""
