"""Sessions of boto3, and look-ups in AWS that several folders share."""
