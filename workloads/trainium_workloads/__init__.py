"""Programs of a job's containers. Standard library alone, unless a module says otherwise."""

import gc

# PyTorch and transformers make a million objects that stay. By default a search for garbage among them is more than a
# tenth of the time of their import.
gc.set_threshold(50_000, 20, 100)
