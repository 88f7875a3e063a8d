"""From a request of a researcher to a submitted job, or to all reasons against it."""
