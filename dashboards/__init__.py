"""The dashboards' source, of Grafana's own building blocks: ``python -m dashboards`` writes the JSON that ships."""
