"""BERT pre-training: masked words and next sentences, as Devlin et al. (2018) describe them. Needs PyTorch."""
