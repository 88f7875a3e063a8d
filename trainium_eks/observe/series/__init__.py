"""What Prometheus scrapes: its targets, gangs by kube-state-metrics, and the file system by CloudWatch."""
