"""The base of all config models, the checks that sections share, and problems with their fixes."""
