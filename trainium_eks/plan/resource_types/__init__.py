"""Facts about each resource type, one declaration a type."""
