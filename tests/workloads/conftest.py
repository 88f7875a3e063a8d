"""What every test of the trainings may use."""

import os
from importlib.util import find_spec

import pytest

# Before PyTorch is imported: ranks side by side on few cores only get in each other's way with more.
os.environ["OMP_NUM_THREADS"] = "1"
# torch-xla asks for a device when it is imported.
os.environ.setdefault("PJRT_DEVICE", "CPU")
# Otherwise transformers' accelerate imports it in every rank.
os.environ.setdefault("USE_TORCH_XLA", "0")

if find_spec("torch") is None:
    # In the library's own environment, where `pytest tests` comes by here.
    collect_ignore_glob = ["*"]
else:
    from gangs import Gang

    # The files that take longest; fabric's tests mostly wait, and leave their processor to finetune's.
    _FIRST = ["test_finetune", "test_fabric", "test_loop", "test_serving"]
    _FIRST += ["test_bert_pretrain", "test_text_classification_train"]

    def pytest_collection_modifyitems(items):
        """Begin with long files, so that both workers end at the same time."""
        items.sort(key=lambda each: (*_FIRST, each.path.stem).index(each.path.stem))

    @pytest.fixture
    def gang(tmp_path):
        """Runs a module as a gang of ranks: ``gang("trainium_workloads.bert.pretrain", "--size", "tiny", ranks=2)``."""
        return Gang(tmp_path)
