"""``trn jobs``, ``status``, ``logs``, ``top``, ``tensorboard``, ``profile`` and ``cancel``."""
