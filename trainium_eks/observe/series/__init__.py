"""Series of metrics: who serves them, their names, and what is computed of them."""
