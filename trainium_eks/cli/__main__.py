"""``python -m trainium_eks.cli``."""

from trainium_eks.cli import main

if __name__ == "__main__":
    main()
