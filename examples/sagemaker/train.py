"""Polarity as a SageMaker training job: the script that its estimator names (docs/examples-polarity.md)."""

import sys

from trainium_workloads.polarity.train import main
from trainium_workloads.training.refusal import guarded

if __name__ == "__main__":
    sys.exit(guarded(main))
