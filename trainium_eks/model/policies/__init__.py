"""IAM policies of controllers, and the admission policies and rights of teams."""
