"""Computed amounts: addresses, queues, quotas, costs and useful time."""
