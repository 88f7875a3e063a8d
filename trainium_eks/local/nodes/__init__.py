"""Node groups as simulated nodes, and what EKS would run on them."""
