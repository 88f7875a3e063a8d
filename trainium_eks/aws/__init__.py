"""Sessions of boto3, and what several rooms ask of AWS."""
