"""Fine-tuning of any causal language model that transformers has: the model, the texts, the training."""

import os

# accelerate, which transformers imports, would load torch_xla in every training, and so choose a device for it.
os.environ.setdefault("USE_TORCH_XLA", "0")
