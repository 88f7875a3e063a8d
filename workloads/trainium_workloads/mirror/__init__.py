"""Copies a container image to another registry without an engine: ``python -m trainium_workloads.mirror FROM TO``.

Standard library alone, as :mod:`trainium_workloads.stage` is, so that it runs on a laptop and, nearer to the registry
and on its bandwidth, in any Python image in the cluster.
"""
