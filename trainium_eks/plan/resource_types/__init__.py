"""What is known of each resource type, one declaration a type."""
