"""What is judged from a recorded program: rules, cost, time, edges and differences."""
