"""Decoder-only transformer like Llama 2 (arXiv 2307.09288) and Qwen3 (arXiv 2505.09388).

Root-mean-square norm before each part (arXiv 1910.07467), rotary positions (arXiv 2104.09864), grouped-query attention
(arXiv 2305.13245), SwiGLU (arXiv 2002.05202); no bias anywhere. The parts have the names that published weights have,
so that weights are read and written without a table of names.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trainium_workloads.decoder.configuration import LOSS_POSITIONS, Configuration
from trainium_workloads.training.refusal import Refusal

INITIAL_DEVIATION = 0.02
"""Of random weights, as both families' papers' predecessors have it (GPT-2); those that lead back into the residual
stream get less, by the depth."""


class Norm(nn.Module):
    """Divides by the root of the mean square, in FP32."""

    def __init__(self, size: int, epsilon: float, *, of_heads: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon
        self.of_heads = of_heads

    def forward(self, x: Tensor) -> Tensor:
        """Return the input, normalized over the last dimension."""
        weight = self.weight
        if isinstance(weight, DTensor):
            # Under tensor parallelism each rank has some heads, so its gradient is a part of the sum; what is no head
            # is the same in all ranks.
            weight = weight.to_local(grad_placements=[Partial() if self.of_heads else Replicate()])
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return weight * wide.to(x.dtype)


class Attention(nn.Module):
    """Causal self-attention with heads that share keys and values in groups."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__()
        self.head_size = size = configuration.head_size
        hidden, keys = configuration.hidden, configuration.key_value_heads * size
        self.q_proj = nn.Linear(hidden, configuration.heads * size, bias=False)
        self.k_proj = nn.Linear(hidden, keys, bias=False)
        self.v_proj = nn.Linear(hidden, keys, bias=False)
        self.o_proj = nn.Linear(configuration.heads * size, hidden, bias=False)
        self.q_norm: nn.Module = nn.Identity()
        self.k_norm: nn.Module = nn.Identity()
        if configuration.normed_queries:
            self.q_norm = Norm(size, configuration.norm_epsilon, of_heads=True)
            self.k_norm = Norm(size, configuration.norm_epsilon, of_heads=True)
        self.grouped = configuration.key_value_heads != configuration.heads

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """Return ``[batch, sequence, hidden]`` from the same shape, and the cosine and sine of each position's
        angles."""
        # How many heads are here follows from the width: under tensor parallelism they are some.
        heads = (*x.shape[:2], -1, self.head_size)
        queries = rotated(self.q_norm(self.q_proj(x).view(heads)).transpose(1, 2), turns)
        keys = rotated(self.k_norm(self.k_proj(x).view(heads)).transpose(1, 2), turns)
        values = self.v_proj(x).view(heads).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=self.grouped)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """A linear layer gated by another's SiLU."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(configuration.hidden, configuration.intermediate, bias=False)
        self.up_proj = nn.Linear(configuration.hidden, configuration.intermediate, bias=False)
        self.down_proj = nn.Linear(configuration.intermediate, configuration.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, sequence, hidden]``."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """One layer of the decoder."""

    def __init__(self, configuration: Configuration, *, recompute: bool) -> None:
        super().__init__()
        self.input_layernorm = Norm(configuration.hidden, configuration.norm_epsilon)
        self.self_attn = Attention(configuration)
        self.post_attention_layernorm = Norm(configuration.hidden, configuration.norm_epsilon)
        self.mlp = FeedForward(configuration)
        self.recompute = recompute

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """Return ``[batch, sequence, hidden]``."""
        if self.recompute and torch.is_grad_enabled():
            # Within the block, so that FSDP, which wraps it, gathers its weights before both passes over it.
            return recomputed(self._layer, x, turns)
        return self._layer(x, turns)

    def _layer(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turns)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    """All but the output layer."""

    def __init__(self, configuration: Configuration, *, recompute: bool) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(configuration.vocabulary, configuration.hidden)
        self.layers = nn.ModuleList(Block(configuration, recompute=recompute) for _ in range(configuration.layers))
        self.norm = Norm(configuration.hidden, configuration.norm_epsilon)


class Decoder(nn.Module):
    """Decoder that predicts each token from the tokens before it.

    Args:
        configuration: its sizes.
        recompute: keep only each block's input for the backward pass and compute the rest again (activation
            checkpointing, arXiv 1604.06174): a third more arithmetic, a fraction of the memory.
    """

    def __init__(self, configuration: Configuration, *, recompute: bool = False) -> None:
        super().__init__()
        self.configuration = configuration
        self.model = Body(configuration, recompute=recompute)
        self.lm_head = nn.Linear(configuration.hidden, configuration.vocabulary, bias=False)
        self._tie()

    def _tie(self) -> None:
        """Make the output layer's weight the embedding's, where it is."""
        if self.configuration.tied:
            self.lm_head.weight = self.model.embed_tokens.weight

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Decoder":
        """Tie the weights again after ``to`` and ``to_empty``, which on XLA and from ``meta`` make each layer a
        parameter."""
        super()._apply(fn, recurse)
        self._tie()
        return self

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return logits, or the loss.

        Args:
            tokens: ``[batch, sequence]``, whole numbers.
            targets: the tokens to predict at each position; negative ones do not count.

        Returns:
            ``[batch, sequence, vocabulary]``; with targets a scalar in FP32, the mean over the targets that count.
        """
        x = self.model.embed_tokens(tokens)
        turns = angles(self.configuration, tokens.shape[1], x)
        for block in self.model.layers:
            x = block(x, turns)
        x = self.model.norm(x)
        if targets is None:
            logits: Tensor = self.lm_head(x)
            return logits
        return self._loss(x.flatten(0, 1), targets.flatten())

    def _loss(self, x: Tensor, targets: Tensor) -> Tensor:
        total = x.new_zeros((), dtype=torch.float32)
        for start in range(0, len(targets), LOSS_POSITIONS):
            part = slice(start, start + LOSS_POSITIONS)
            total = total + recomputed(self._summed, x[part], targets[part])
        return total / (targets >= 0).sum().clamp(min=1)

    def _summed(self, x: Tensor, targets: Tensor) -> Tensor:
        # -100 is what cross_entropy leaves out.
        targets = torch.where(targets < 0, -100, targets)
        return functional.cross_entropy(self.lm_head(x).float(), targets, ignore_index=-100, reduction="sum")

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the units of sharding, in the order of the forward pass."""
        yield from self.model.layers

    def divide(self, mesh: DeviceMesh) -> None:
        """Divide heads, feed-forward layers and vocabulary over the mesh, for tensor parallelism (arXiv 1909.08053).

        Args:
            mesh: one dimension.

        Raises:
            Refusal: the sizes cannot be divided by the number of ranks.
        """
        ranks, sizes = mesh.size(), self.configuration
        for what, size in (
            ("heads", sizes.heads),
            ("key and value heads", sizes.key_value_heads),
            ("feed-forward features", sizes.intermediate),
            ("tokens of the vocabulary", sizes.vocabulary),
        ):
            if size % ranks:
                raise Refusal(
                    f"--tensor-parallel {ranks} does not divide the model's {size} {what}; {math.gcd(ranks, size)} does"
                )
        plan = {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate())}
        for number in range(sizes.layers):
            layer = f"model.layers.{number}"
            plan |= {f"{layer}.self_attn.{each}_proj": ColwiseParallel() for each in "qkv"}
            plan |= {f"{layer}.mlp.{each}_proj": ColwiseParallel() for each in ("gate", "up")}
            plan |= {f"{layer}.self_attn.o_proj": RowwiseParallel(), f"{layer}.mlp.down_proj": RowwiseParallel()}
        parallelize_module(self, mesh, plan | {"lm_head": ColwiseParallel(output_layouts=Replicate())})
        for module in self.modules():
            if isinstance(module, Norm):
                # Every parameter is on the same mesh then, which optimizers and checkpoints count on.
                module.weight = nn.Parameter(
                    DTensor.from_local(module.weight.data, mesh, [Replicate()], run_check=False)
                )
        self._tie()


def recomputed(function: Callable[..., Tensor], x: Tensor, *others: object) -> Tensor:
    """Return the function's result and keep only its arguments for the backward pass. Nothing in it is random."""
    if x.device.type == "xla":
        # PyTorch's own does not know this device, and without barriers the compiler keeps what it sees computed twice.
        from torch_xla.utils.checkpoint import checkpoint as with_barriers

        kept: Tensor = with_barriers(function, x, *others, preserve_rng_state=False)
        return kept
    result: Tensor = checkpoint(function, x, *others, use_reentrant=False, preserve_rng_state=False)
    return result


def angles(configuration: Configuration, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of each position's turn, ``[length, head size]``, in the type and on the device of a
    tensor. Computed in FP32 each time: a buffer would have to be filled anew after a model was made without
    memory."""
    size = configuration.head_size
    exponents = torch.arange(0, size, 2, device=like.device, dtype=torch.float32) / size
    steps = torch.arange(length, device=like.device, dtype=torch.float32)
    turn = torch.outer(steps, 1.0 / configuration.rotary_base**exponents).repeat(1, 2)
    return turn.cos().to(like.dtype), turn.sin().to(like.dtype)


def rotated(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each head's pairs of features by their position's angle. A pair is one of the first half and its
    fellow of the second, the order in published weights."""
    cosine, sine = turns
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine
