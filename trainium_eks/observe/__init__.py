"""What is measured: where series come from, what is computed of them, who is told, and what is shown. No Pulumi."""
