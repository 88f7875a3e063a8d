"""Fine-tuning of any causal language model that transformers has: the model, the texts, the training."""

import os

# accelerate, which transformers imports, would load torch_xla in every training, and take the device of the backend.
os.environ["USE_TORCH_XLA"] = "0"
