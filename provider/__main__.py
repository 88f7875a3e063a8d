"""The components as a Pulumi package for other languages (docs/for-infrastructure-developers.md)."""

import sys
from pathlib import Path

# The components are read from the checkout that the provider is part of.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pulumi.provider import main

from provider.host import TrainiumProvider

if __name__ == "__main__":
    main(TrainiumProvider(), sys.argv[1:])
