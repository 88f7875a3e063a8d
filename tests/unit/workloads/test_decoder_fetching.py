from pathlib import Path

import pytest
from staging_servers import hub
from trainium_workloads.decoder import fetching
from trainium_workloads.training.refusal import Refusal

LLAMA = "hf://meta-llama/Llama-2-7b-hf"


def test_a_gated_model_is_fetched_with_a_mounted_token_and_once(tmp_path: Path) -> None:
    with hub() as stub:
        stub.name, stub.token = "models/meta-llama/Llama-2-7b-hf", "secret"
        stub.files = {
            "config.json": b"{}",
            "model.safetensors": b"weights",
            "pytorch_model.bin": b"the same once more",
            "original/params.json": b"and again",
        }
        stub.large = frozenset({"model.safetensors"})
        (tmp_path / "token").write_text("secret\n")
        environment = {"HF_ENDPOINT": stub.url, "HF_TOKEN_PATH": str(tmp_path / "token")}
        directory = fetching.fetch(LLAMA, tmp_path, environment)
        assert directory == tmp_path / "models--meta-llama--Llama-2-7b-hf"
        assert {each.name for each in directory.iterdir() if each.name[0] != "."} == {
            "config.json",
            "model.safetensors",
        }
        stub.files = {}
        assert fetching.fetch(LLAMA, tmp_path, environment) == directory
        stub.token = "another"
        with pytest.raises(Refusal, match="its token may not read it"):
            fetching.fetch(f"{LLAMA}@v2", tmp_path, environment)


def test_a_gated_model_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(
        Refusal, match=r"is gated: accept its licence at https://huggingface.co/meta-llama/Llama-2-7b-hf"
    ):
        fetching.fetch(LLAMA, tmp_path, {"HF_TOKEN": " "})
    with pytest.raises(Refusal, match=r"HF_TOKEN_PATH names /nowhere/token: No such file.*is the Secret mounted there"):
        fetching.fetch(LLAMA, tmp_path, {"HF_TOKEN_PATH": "/nowhere/token"})
