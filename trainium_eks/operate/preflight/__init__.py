"""Checks of an AWS account before a stack is built (``trn check``): quotas, capacity, versions, rights. They only
read."""
