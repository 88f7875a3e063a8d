"""What a SageMaker training job installs is what training images have."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def pins(file):
    """Return the pinned packages, without their extras: a training job serves nothing."""
    lines = (re.sub(r"\[.*?\]|#.*", "", line).strip() for line in file.read_text().splitlines())
    return {line for line in lines if line}


def test_packages_are_pinned_like_the_training_images():
    wanted = pins(ROOT / "examples" / "sagemaker" / "requirements.txt")
    of_training = {"datasets", "pyarrow", "safetensors", "tensorboard", "tokenizers", "transformers"}
    assert {line.partition("==")[0] for line in wanted} == of_training
    assert wanted <= pins(ROOT / "workloads" / "image-requirements.txt")
