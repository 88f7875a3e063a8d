"""BERT, as in Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (arXiv 1810.04805).

Parameters have the names of Hugging Face's ``BertForPreTraining``, so published weights load unchanged and weights
trained here load there. All shapes are fixed by the batch: an accelerator compiles one graph.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

_WITH_FUSED_ATTENTION = ("cpu", "cuda")
"""Devices with a kernel for it in PyTorch. On the others (``xla``, ``neuron``) the compiler fuses the plain form."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a BERT."""

    layers: int
    hidden: int
    """Features of a token; a multiple of :attr:`heads`."""
    heads: int
    intermediate: int
    """Features inside a layer's feed-forward part."""
    vocabulary: int = 30522
    """Tokens; the published uncased models have 30,522."""
    positions: int = 512
    """The longest sequence."""
    segments: int = 2
    dropout: float = 0.1


SIZES = {
    "tiny": Sizes(layers=2, hidden=64, heads=2, intermediate=256, vocabulary=256, positions=128),
    "base": Sizes(layers=12, hidden=768, heads=12, intermediate=3072),
    "large": Sizes(layers=24, hidden=1024, heads=16, intermediate=4096),
}
"""By name. Base (110 million parameters) and large (340 million) are the paper's; tiny is for tests on a CPU."""

PADDING = 0
"""Token that fills a sequence up."""


class BertForPreTraining(nn.Module):
    """BERT with its two heads: for masked words, and for whether the second sentence followed the first."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.bert = Bert(sizes)
        self.cls = _Heads(sizes)
        initialize(self)

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits of the words at the positions, and of the two answers on the second sentence.

        Args:
            tokens: [batch, sequence], integers below the vocabulary's size.
            segments: [batch, sequence], 0 for the first sentence, 1 for the second.
            mask: [batch, sequence], 1 for tokens, 0 for padding.
            positions: [batch, predictions], of the tokens to predict.

        Returns:
            [batch, predictions, vocabulary] and [batch, 2].
        """
        hidden, pooled = self.bert(tokens, segments, mask)
        return self.cls(_at(positions, hidden), pooled, self.bert.embeddings.word_embeddings.weight)


class Bert(nn.Module):
    """Common part of all uses of BERT: embeddings, layers and pooler."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embeddings = _Embeddings(sizes)
        self.encoder = _Encoder(sizes)
        self.pooler = _Dense(sizes.hidden, sizes.hidden)

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return features of all tokens, [batch, sequence, hidden], and of the sequence, [batch, hidden].

        The arguments are the first of :meth:`BertForPreTraining.forward`.
        """
        hidden = self.encoder(self.embeddings(tokens, segments), mask[:, None, None, :].bool())
        return hidden, torch.tanh(self.pooler.dense(hidden[:, 0]))


def initialize(model: nn.Module) -> None:
    """Draw the weights as the paper does: normal with deviation 0.02, biases 0, norms the identity."""
    for each in model.modules():
        if isinstance(each, nn.Linear | nn.Embedding):
            nn.init.normal_(each.weight, std=0.02)
        if isinstance(each, nn.Linear) and each.bias is not None:
            nn.init.zeros_(each.bias)
        if isinstance(each, nn.Embedding) and each.padding_idx is not None:
            nn.init.zeros_(each.weight[each.padding_idx].detach())


class _Embeddings(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(sizes.vocabulary, sizes.hidden, padding_idx=PADDING)
        self.position_embeddings = nn.Embedding(sizes.positions, sizes.hidden)
        self.token_type_embeddings = nn.Embedding(sizes.segments, sizes.hidden)
        self.LayerNorm = _norm(sizes)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        places = self.position_embeddings.weight[: tokens.shape[1]]
        return self.dropout(
            self.LayerNorm(self.word_embeddings(tokens) + self.token_type_embeddings(segments) + places)
        )


class _Encoder(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.layer = nn.ModuleList(_Layer(sizes) for _ in range(sizes.layers))

    def forward(self, hidden: Tensor, seen: Tensor) -> Tensor:
        for layer in self.layer:
            hidden = layer(hidden, seen)
        return hidden


class _Layer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention = _Attention(sizes)
        self.intermediate = _Dense(sizes.hidden, sizes.intermediate)
        self.output = _Output(sizes.intermediate, sizes)

    def forward(self, hidden: Tensor, seen: Tensor) -> Tensor:
        hidden = self.attention(hidden, seen)
        return self.output(functional.gelu(self.intermediate.dense(hidden)), hidden)


class _Attention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.self = _SelfAttention(sizes)
        self.output = _Output(sizes.hidden, sizes)

    def forward(self, hidden: Tensor, seen: Tensor) -> Tensor:
        return self.output(self.self(hidden, seen), hidden)


class _SelfAttention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self._heads, self._dropout = sizes.heads, sizes.dropout
        self.query = nn.Linear(sizes.hidden, sizes.hidden)
        self.key = nn.Linear(sizes.hidden, sizes.hidden)
        self.value = nn.Linear(sizes.hidden, sizes.hidden)

    def forward(self, hidden: Tensor, seen: Tensor) -> Tensor:
        dropout = self._dropout if self.training else 0.0
        attend = functional.scaled_dot_product_attention if hidden.device.type in _WITH_FUSED_ATTENTION else attention
        queries, keys, values = (self._split(each(hidden)) for each in (self.query, self.key, self.value))
        mixed = attend(queries, keys, values, attn_mask=seen, dropout_p=dropout)
        return mixed.transpose(1, 2).flatten(2)

    def _split(self, features: Tensor) -> Tensor:
        """Return [batch, heads, sequence, hidden / heads] from [batch, sequence, hidden]."""
        return features.unflatten(2, (self._heads, -1)).transpose(1, 2)


def attention(queries: Tensor, keys: Tensor, values: Tensor, *, attn_mask: Tensor, dropout_p: float) -> Tensor:
    """Return ``torch.nn.functional.scaled_dot_product_attention`` in plain operators, for compilers that fuse by
    themselves.

    Args:
        queries: [batch, heads, sequence, features], as are keys and values.
        keys: compared with the queries.
        values: mixed by the weights.
        attn_mask: true where a key may be seen; of a shape that broadcasts to [batch, heads, sequence, sequence].
        dropout_p: part of the weights that is dropped.
    """
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    # Not -inf: a sequence of nothing but padding would give NaN.
    scores = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min)
    weights = functional.softmax(scores, dim=-1, dtype=torch.float32).to(values.dtype)
    return functional.dropout(weights, dropout_p) @ values


class _Dense(nn.Module):
    def __init__(self, size: int, to: int) -> None:
        super().__init__()
        self.dense = nn.Linear(size, to)


class _Output(_Dense):
    """Projection to the hidden size, added to the layer's input."""

    def __init__(self, size: int, sizes: Sizes) -> None:
        super().__init__(size, sizes.hidden)
        self.LayerNorm = _norm(sizes)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, features: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(features)) + residual)


class _Heads(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.predictions = _Predictions(sizes)
        self.seq_relationship = nn.Linear(sizes.hidden, 2)

    def forward(self, masked: Tensor, pooled: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        return self.predictions(masked, words), self.seq_relationship(pooled)


class _Predictions(nn.Module):
    """Words from features, by the same weights that made features from words.

    They come with each call instead of being a parameter here as well: moving a module to an XLA device makes two
    tensors of a parameter that two modules share.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.transform = _Transform(sizes)
        self.bias = nn.Parameter(torch.zeros(sizes.vocabulary))

    def forward(self, masked: Tensor, words: Tensor) -> Tensor:
        return functional.linear(self.transform(masked), words, self.bias)


class _Transform(_Dense):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes.hidden, sizes.hidden)
        self.LayerNorm = _norm(sizes)

    def forward(self, masked: Tensor) -> Tensor:
        return self.LayerNorm(functional.gelu(self.dense(masked)))


def _norm(sizes: Sizes) -> nn.LayerNorm:
    return nn.LayerNorm(sizes.hidden, eps=1e-12)


def _at(positions: Tensor, hidden: Tensor) -> Tensor:
    """Return the features at the positions, [batch, predictions, hidden].

    A product with ones and zeros instead of a gather: the gather's gradient is a scatter, which accelerators do slowly
    and CUDA in an order that changes from run to run. It costs a thousandth of a layer.
    """
    places = torch.arange(hidden.shape[1], device=hidden.device)
    return (positions[:, :, None] == places).to(hidden.dtype) @ hidden
