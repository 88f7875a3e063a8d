"""Plain facts and judgements: the catalogue, the config model, and what is wrong with a config. Imports no pulumi."""
