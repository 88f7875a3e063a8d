"""Work on a whole environment: checks before and after, reviews, upgrades and cleaning up."""
