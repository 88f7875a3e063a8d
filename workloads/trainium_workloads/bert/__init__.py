"""BERT pre-training: masked words and next sentences, as Devlin et al. (2018) describe them. Needs PyTorch."""

import os

# accelerate, which transformers imports, would load torch_xla in every training, and so choose a device for it.
os.environ.setdefault("USE_TORCH_XLA", "0")
