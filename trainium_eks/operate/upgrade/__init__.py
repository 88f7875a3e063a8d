"""Upgrades from one version to the next: changes of the config, and their effects on a running environment."""
