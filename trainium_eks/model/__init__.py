"""Plain facts and validation: the catalogue, the config model, and the problems of a config. Imports no pulumi."""
