# The package as the wheel has it: there the components are inside it.

from .components import *  # noqa: F403 - its names stand in the stub there

__version__: str
