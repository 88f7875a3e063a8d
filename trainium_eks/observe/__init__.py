"""Observation: scraped series, Prometheus' rules, alerts, dashboards, faults, and the idle guard. No Pulumi."""
