"""A training whose every number follows from its inputs: ``gpu_script MODULE [arguments of the module]``."""

import os
import runpy
import sys

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS asks for it

import torch

torch.use_deterministic_algorithms(True)
if __name__ == "__main__":
    module, *sys.argv[1:] = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
