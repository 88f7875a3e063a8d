"""Work on a whole environment: checks before and after, reviews and cleaning up."""
