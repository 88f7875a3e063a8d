"""Memory that a device needs, from the sizes alone: before hours of waiting for nodes that are too small."""

from dataclasses import dataclass

from trainium_workloads.decoder.configuration import LOSS_POSITIONS, Configuration

_WIDE = 4
"""Bytes of FP32."""


@dataclass(frozen=True)
class Plan:
    """Settings of a decoder's training that decide its memory."""

    ranks: int
    tensor_parallel: int = 1
    is_sharded: bool = True
    keeps_gradients: bool = False
    """Whether a rank holds gradients of the whole model between micro-batches (several of them, and ``last``)."""
    recompute: bool = True
    batch_size: int = 1
    length: int = 4096
    """Tokens of an example."""
    compute_bytes: int = 2
    """Of a number that is computed with: 2 in BF16, 4 in FP32."""


@dataclass(frozen=True)
class Memory:
    """Memory of one device, in bytes."""

    states: int
    """Parameters, gradients and AdamW's two moments, FP32: exact."""
    gathered: int
    """Weights of the block that runs, of the next, which is fetched meanwhile, and of what is no block; and whole
    gradients where they are kept. Exact, but for what the allocator adds."""
    activations: int
    """Estimated bytes that the forward pass keeps, with PyTorch's memory-saving attention."""

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.states + self.gathered + self.activations


def needed(configuration: Configuration, plan: Plan) -> Memory:
    """Return the memory that a device needs.

    Args:
        configuration: of the model.
        plan: of its training.
    """
    whole = configuration.parameters
    if not plan.is_sharded:
        cast = whole * plan.compute_bytes if plan.compute_bytes < _WIDE else 0
        return Memory(whole * 4 * _WIDE, cast, _activations(configuration, plan))
    outside = whole - configuration.layers * configuration.largest_block
    # A block's gradients are made in the computing precision and reduced in FP32.
    gathered = (outside + 2 * configuration.largest_block) * plan.compute_bytes
    gathered += configuration.largest_block * (plan.compute_bytes + _WIDE)
    kept = whole * _WIDE if plan.keeps_gradients else outside * (plan.compute_bytes + _WIDE)
    return Memory(
        states=-(-whole * 4 * _WIDE // plan.ranks),
        gathered=(gathered + kept) // plan.tensor_parallel,
        activations=_activations(configuration, plan),
    )


def _activations(configuration: Configuration, plan: Plan) -> int:
    tokens = plan.batch_size * plan.length
    hidden = configuration.hidden
    heads = (configuration.heads + 2 * configuration.key_value_heads) * configuration.head_size
    # Of a block: inputs of both norms in two precisions, of the products, and what SiLU and the gate keep.
    divided = 2 * heads + 2 * configuration.heads * configuration.head_size + 4 * configuration.intermediate
    block = tokens * (8 * hidden + divided // plan.tensor_parallel) * plan.compute_bytes
    blocks = configuration.layers * tokens * hidden * plan.compute_bytes + block
    if not plan.recompute:
        blocks = configuration.layers * block
    positions = min(tokens, LOSS_POSITIONS)
    # Logits as computed, in FP32, their softmax and their gradient.
    return blocks + positions * configuration.vocabulary * (plan.compute_bytes + 3 * _WIDE)


def gigabytes(size: int) -> str:
    """Return ``17.3 GB`` of 10⁹ bytes; ``0.0021 GB`` for small sizes."""
    return f"{size / 1e9:.1f} GB" if size >= 10**8 else f"{size / 1e9:.2g} GB"
