"""What the page on fine-tuning says of memory and money is what the code and the catalogue say."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from trainium_workloads.decoder.configuration import CONFIGURATIONS
from trainium_workloads.decoder.memory import Plan, needed

from trainium_eks.model.catalogue.instances import CATALOGUE

PAGE = (Path(__file__).parents[3] / "docs" / "examples-fsdp.md").read_text(encoding="utf-8")
TOKENS = 10**8
USED = 0.4
"""Of the peak: what well-fed GPUs reach."""


@dataclass(frozen=True)
class Machine:
    instance_type: str
    nodes: int
    ranks: int
    """Of a node."""
    peak: float
    """Of an instance, dense BF16, FLOP a second: the data sheets of A100, H100 and Trainium2."""
    tensor_parallel: int = 1


MACHINES = (
    Machine("p4d.24xlarge", 1, 8, 8 * 312e12),
    Machine("p4d.24xlarge", 2, 8, 8 * 312e12),
    Machine("p5.48xlarge", 1, 8, 8 * 989e12),
    Machine("trn2.48xlarge", 1, 64, 16 * 667e12),
    Machine("trn2.48xlarge", 1, 64, 16 * 667e12, tensor_parallel=4),
)
MODELS = ("llama-2-7b", "qwen3-8b")


def memory_row(model: str, machine: Machine) -> str:
    sizes, ranks = CONFIGURATIONS[model], machine.ranks * machine.nodes
    plain = needed(sizes, Plan(ranks, machine.tensor_parallel))
    kept = needed(sizes, Plan(ranks, machine.tensor_parallel, keeps_gradients=True))
    room = CATALOGUE.find(machine.instance_type).accelerator_memory_gib * 2**30 / machine.ranks
    assert plain.total < room
    parts = " | ".join(f"{each / 1e9:.1f}" for each in (plain.states, plain.gathered, plain.activations, plain.total))
    mark = "" if kept.total < room else " (too much)"
    began = f"| {model} | {machine.nodes} × {machine.instance_type} | {machine.tensor_parallel}"
    return f"{began} | {parts} | {kept.total / 1e9:.1f}{mark} | {room / 1e9:.1f} |"


def cost_row(model: str, machine: Machine) -> str:
    # Forward and backward pass take 6 operations a parameter and token, and what is computed again takes 2 more.
    hours = 8 * CONFIGURATIONS[model].parameters * TOKENS / (machine.peak * machine.nodes * USED) / 3600
    price = CATALOGUE.price(machine.instance_type)
    cost = f"{price.hourly_usd * machine.nodes * hours:.0f}" if price else "no list price"
    hourly = f"{price.hourly_usd * machine.nodes:.2f}" if price else "no list price"
    return f"| {model} | {machine.nodes} × {machine.instance_type} | {hourly} | {hours:.1f} | {cost} |"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("model", MODELS)
def test_memory(model: str, machine: Machine) -> None:
    assert memory_row(model, machine) in PAGE.splitlines()


@pytest.mark.parametrize("machine", [each for each in MACHINES if each.tensor_parallel == 1])
@pytest.mark.parametrize("model", MODELS)
def test_cost(model: str, machine: Machine) -> None:
    assert cost_row(model, machine) in PAGE.splitlines()
