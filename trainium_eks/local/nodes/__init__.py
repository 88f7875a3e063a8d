"""Node groups as simulated nodes, and the add-on workloads that EKS would run on them."""
