"""Helm releases on the local cluster, and the charts they come from."""
