"""Trainings that come with the library: ``trn train --example NAME``."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

PACKAGE = "trainium_workloads"
"""Package in every image that ``trn image build`` makes, and in the local cloud's."""


@dataclass(frozen=True)
class Example:
    """An example training."""

    name: str
    module: str
    """Module for ``python -m``."""
    about: str
    """Description in a few words, for lists."""
    needs_torch: bool = True
    state_gigabytes: float = 0.0
    """Size of a checkpoint with the script's defaults: 12 bytes a parameter, weights and both moments of Adam."""
    local_arguments: tuple[str, ...] = ()
    """Arguments with which it runs on a machine without accelerators in a minute, and needs no data."""


_SMALL = ("--synthetic", "512", "--steps", "20")
"""Made-up examples, and few steps."""

EXAMPLES: Mapping[str, Example] = MappingProxyType(
    {
        each.name: each
        for each in (
            Example("gradient-sum", f"{PACKAGE}.gradient_sum", "ranks that add their gradients", needs_torch=False),
            Example(
                "bert",
                f"{PACKAGE}.bert.pretrain",
                "BERT pre-training",
                state_gigabytes=4.0,
                local_arguments=("--size", "tiny", *_SMALL),
            ),
            Example(
                "finetune",
                f"{PACKAGE}.finetune.train",
                "any causal language model of transformers, fully sharded",
                state_gigabytes=98.0,
                # It begins with random weights there, not with published ones, which want a hundredth of the rate.
                local_arguments=(
                    *("--model", "tiny", "--seq-len", "64", "--learning-rate", "0.003", "--warmup-steps", "2"),
                    *_SMALL,
                ),
            ),
            Example(
                "text-classification",
                f"{PACKAGE}.text_classification.train",
                "reviews told apart by a published encoder",
                state_gigabytes=1.3,
                local_arguments=("--size", "tiny", *_SMALL),
            ),
        )
    }
)


def example_of(module: str) -> Example | None:
    """Return the example with a module; None for other modules."""
    return next((each for each in EXAMPLES.values() if each.module == module), None)
