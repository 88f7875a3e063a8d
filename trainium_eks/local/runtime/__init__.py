"""Containers of a pod as processes of this machine."""
