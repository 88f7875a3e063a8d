"""From one version to the next: what an upgrade asks of the config, and what it does to a running environment."""
