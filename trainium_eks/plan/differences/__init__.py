"""Differences between two recorded programs: changes, their consequences, refusals, effects and cost."""
