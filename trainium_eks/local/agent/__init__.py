"""Pods that run: those with a ``local/`` image are processes of this machine; all other pods are simulated by kwok."""
