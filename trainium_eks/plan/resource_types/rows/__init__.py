"""The rows of the resource types, a module for each AWS service or provider."""
