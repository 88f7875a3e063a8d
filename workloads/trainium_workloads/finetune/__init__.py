"""Fine-tuning of any causal language model that transformers has: the model, the texts, the training."""
