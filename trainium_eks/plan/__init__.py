"""The recorded program, its rules, cost, time, edges and differences."""
