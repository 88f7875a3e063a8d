"""Configurations of the sizes of BERT."""

from transformers import BertConfig

from trainium_workloads.model_directory import attention_of

_SIZES = {
    "tiny": (2, 64, 2, 256, 256, 128),
    "base": (12, 768, 12, 3072, 30522, 512),
    "large": (24, 1024, 16, 4096, 30522, 512),
}
SIZES = tuple(_SIZES)
"""Names of sizes. Base (110 million parameters) and large (336 million) are the paper's; tiny is for a CPU."""


def config_of(size: str, backend: str, *, vocabulary: int | None = None, dropout: float = 0.1) -> BertConfig:
    """Return the configuration of a BERT of one of :data:`SIZES`. The backend decides how attention is computed;
    ``vocabulary``: None for the size's default; ``dropout`` is the share of features and attention weights that
    training drops, below 1."""
    layers, hidden, heads, intermediate, tokens, positions = _SIZES[size]
    return BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        vocab_size=vocabulary or tokens,
        max_position_embeddings=positions,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        attn_implementation=attention_of(backend),
    )
