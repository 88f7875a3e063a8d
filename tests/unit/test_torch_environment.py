"""What `make test-workloads` says where PyTorch cannot be had."""

import shutil

import pytest
import torch_environment
from outcome import raising
from torch_environment import main

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.images import images
from trainium_eks.local.images.installing import NotOfferedError


@pytest.fixture(autouse=True)
def _nothing_there(tmp_path, monkeypatch):
    monkeypatch.setenv("TRN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(torch_environment, "NEEDED_BYTES", 0)


def test_full_disk_skips_the_workload_tests_with_a_message(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(torch_environment, "NEEDED_BYTES", shutil.disk_usage(tmp_path).total + 1.0)
    assert main([]) == 0
    said = capsys.readouterr().err
    assert said.startswith("SKIPPED tests/workloads: PyTorch needs ")
    assert "set TRN_CACHE to a directory on another disk" in said
    assert said.count("\n") == 1


def test_index_without_pytorch_skips_the_workload_tests_with_a_message(capsys, monkeypatch):
    monkeypatch.setattr(images, "make", raising(NotOfferedError("pip ended with 1:\n  No matching distribution")))
    assert main([]) == 0
    said = capsys.readouterr().err
    assert said.startswith("SKIPPED tests/workloads: no package index")
    assert "(No matching distribution); set PIP_INDEX_URL" in said


def test_any_other_error_fails(capsys, monkeypatch):
    monkeypatch.setattr(images, "make", raising(ClusterError("pip ended with 1: no h5py")))
    assert main([]) == 1
    assert capsys.readouterr().err == "pip ended with 1: no h5py\n"
