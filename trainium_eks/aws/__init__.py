"""Sessions of boto3, and look-ups in AWS shared by several rooms."""
