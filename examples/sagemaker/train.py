"""Text classification as a SageMaker training job; docs/examples.md has its estimator."""

import sys

from trainium_workloads.text_classification.train import main
from trainium_workloads.training.refusal import guarded

if __name__ == "__main__":
    sys.exit(guarded(main))
