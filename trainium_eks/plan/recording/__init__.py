"""Recording of a program: a run without an engine, and the graph of its registrations."""
