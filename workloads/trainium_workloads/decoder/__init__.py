"""Decoders of the Llama and Qwen3 families: the model, published weights, token data and fine-tuning. Needs PyTorch."""
