"""The dashboards' source, of Grafana's own building blocks; running it as a program writes the JSON that ships."""
