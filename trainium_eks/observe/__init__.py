"""Observation: metrics with their sources, recorded series, alerts, dashboards, and the idle guard. No Pulumi."""
