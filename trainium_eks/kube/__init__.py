"""The client of Kubernetes' API: requests, their retries, errors, and channels into pods."""
