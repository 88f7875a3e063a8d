"""Recording a program: running it without an engine and writing down what it registers."""
