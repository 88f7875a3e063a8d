"""Classification of texts: a published encoder fine-tuned on reviews, on a cluster or in a SageMaker training job."""

import os

# accelerate, which transformers imports, would load torch_xla in every training, and so choose a device for it.
os.environ.setdefault("USE_TORCH_XLA", "0")
# A tokenizer may have used its threads before a DataLoader forks its workers, which do not tokenize.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
