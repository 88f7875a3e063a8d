"""How fast ``finetune`` trains, beside transformers' Trainer and a plain PyTorch loop, with the same model and rows.

Run by hand on an idle machine, in the environment of ``make torch``: ``.venv/workloads/bin/python
benchmarks/training.py --device cuda --compile``. The ranks of each contestant are separate processes, and the
contestants take turns. Optimizer (fused AdamW), clipping, schedule, precision, attention and activation checkpointing
agree; each logs as by default. The time runs from the end of one update to the end of a later one; on CPUs it is the
processors' time of a rank, which other work on the machine changes little.
"""

import argparse
import contextlib
import logging
import multiprocessing
import os
import random
import resource
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
import isolated_run

isolated_run.isolate()
# Read when libraries are imported.
os.environ |= {"USE_TORCH_XLA": "0", "OMP_NUM_THREADS": "1"}
import torch
import transformers
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

HERE = Path(__file__).resolve().parents[1] / "workloads"
SIZES = {
    # Llama 3.2 1B's.
    "cuda": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
             "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True},
    "cpu": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 4, "vocab_size": 4096, "tie_word_embeddings": True},
}  # fmt: skip
ROWS = {"cuda": (2048, 4), "cpu": (256, 4)}
"""Tokens of a row, and rows of a micro-batch."""
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "A10G": 70e12}
"""Products and sums a second of dense matrices in BF16, by NVIDIA's data sheets."""
RATE, DECAY, WARMUP = 1e-5, 0.1, 3


Measured = tuple[float, float]
"""Seconds of a step, and the greatest memory in GB: what PyTorch took of the GPU's, or the process of the machine's."""


class Watch:
    """Measures the steps after the first ones, in which memory is found and code is compiled."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked, self._count, self._began = asked, 0, 0.0
        self._profiler = torch.profiler.profile() if asked.profile and os.environ.get("RANK", "0") == "0" else None
        self.measured: Measured = (0.0, 0.0)

    def __call__(self, *_: object) -> None:
        self._count += 1
        skipped, steps, is_gpu = self._asked.skip, self._asked.steps, self._asked.device == "cuda"
        if self._count not in (skipped, skipped + steps):
            return
        if is_gpu:
            torch.cuda.synchronize()
        now = time.perf_counter() if is_gpu else time.process_time()
        if self._count == skipped:
            self._began = now
            if self._profiler:
                self._profiler.start()
            return
        of_process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        taken = torch.cuda.max_memory_allocated() if is_gpu else of_process
        self.measured = ((now - self._began) / steps, taken / 1e9)
        if self._profiler:
            self._profiler.stop()
            print(self._profiler.key_averages().table(f"self_{self._asked.device}_time_total", 25), file=sys.stderr)


def finetune(asked: argparse.Namespace, sharding: str) -> None:
    """Ours: the command itself, without checkpoints and export."""
    os.environ["NEURON_EXTRACT_GRAPHS_ONLY"] = "1"
    length, batch = asked.rows
    words: dict[str, Any] = {
        "model": asked.place / "model", "synthetic": asked.examples, "token-cache": asked.place / "tokens",
        "output": asked.place / f"output-{random.random()}", "seq-len": length, "batch-size": batch,
        "steps": asked.skip + asked.steps, "warmup-steps": WARMUP, "learning-rate": RATE, "weight-decay": DECAY,
        "precision": asked.precision, "backend": asked.device, "lora": asked.lora, "sharding": sharding,
    }  # fmt: skip
    flags = [f"--{each}" for each in ("compile", "activation-checkpointing") if getattr(asked, each.replace("-", "_"))]
    sys.argv = ["finetune", *(str(part) for name, value in words.items() for part in (f"--{name}", value)), *flags]
    from trainium_workloads.finetune import train

    train.main()


def trainer(asked: argparse.Namespace) -> None:
    """transformers' Trainer."""
    arguments = transformers.TrainingArguments(
        output_dir=str(asked.place / "trainer"), max_steps=asked.skip + asked.steps, optim="adamw_torch_fused",
        per_device_train_batch_size=asked.rows[1], learning_rate=RATE, warmup_steps=WARMUP, weight_decay=DECAY,
        lr_scheduler_type="cosine", bf16=asked.precision == "bf16", torch_compile=asked.compile,
        gradient_checkpointing=asked.activation_checkpointing, gradient_checkpointing_kwargs={"use_reentrant": False},
        use_cpu=asked.device == "cpu", ddp_backend="gloo" if asked.device == "cpu" and asked.ranks > 1 else None,
        save_strategy="no", report_to="none", disable_tqdm=True,
    )  # fmt: skip
    transformers.Trainer(_model(asked), arguments, train_dataset=_rows(asked)).train()


def loop(asked: argparse.Namespace) -> None:
    """The bound: PyTorch alone."""
    rank, ranks = int(os.environ.get("RANK", "0")), asked.ranks
    model = _model(asked).to(asked.device)
    model.train()
    if asked.activation_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if asked.compile:
        model.compile()
    trained: nn.Module = model
    if ranks > 1:
        torch.distributed.init_process_group("gloo" if asked.device == "cpu" else "nccl")
        trained = nn.parallel.DistributedDataParallel(model)
    learnt = [each for each in model.parameters() if each.requires_grad]
    groups = [{"params": [each for each in learnt if (each.dim() > 1) is many], "weight_decay": DECAY * many}
              for many in (True, False)]  # fmt: skip
    optimizer = torch.optim.AdamW([each for each in groups if each["params"]], lr=RATE, fused=True)
    schedule = transformers.get_cosine_schedule_with_warmup(optimizer, WARMUP, asked.skip + asked.steps)
    rows = _rows(asked)  # in memory
    sampler = torch.utils.data.DistributedSampler(rows, ranks, rank, shuffle=True)
    batches = torch.utils.data.DataLoader(rows, asked.rows[1], sampler=sampler, pin_memory=asked.device == "cuda")
    for batch in batches:
        on_device = {name: each.to(asked.device, non_blocking=True) for name, each in batch.items()}
        with torch.autocast(asked.device, torch.bfloat16, enabled=asked.precision == "bf16"):
            loss = trained(**on_device, use_cache=False).loss
        loss.backward()
        nn.utils.clip_grad_norm_(learnt, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def _model(asked: argparse.Namespace) -> Any:
    # As finetune has it: frozen weights in BF16.
    kind = torch.bfloat16 if asked.lora and asked.precision == "bf16" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(asked.place / "model", dtype=kind)
    if asked.lora:
        import peft

        sizes = {"r": asked.lora, "lora_alpha": 2 * asked.lora, "target_modules": "all-linear"}
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **sizes))
    return model


def _rows(asked: argparse.Namespace) -> list[dict[str, torch.Tensor]]:
    from trainium_workloads.finetune import text
    from trainium_workloads.tokenized import Rows

    file = text.prepare_synthetic(asked.examples, asked.rows[0], 42, asked.place / "tokens")
    tokens = Rows(file).at(range(asked.examples))["tokens"]
    return [{"input_ids": each[:-1], "labels": each[:-1]} for each in tokens]


ATTENTIONS = ("flash", "mem_efficient", "cudnn", "math")
"""PyTorch's kernels of attention."""
GRID: dict[str, dict[str, Any]] = {
    "defaults": {}, "compiled": {"compile": True}, "blocks compiled": {"compile": True, "blocks": True},
    "batch x 2": {"batch": 2}, "compiled, batch x 2": {"compile": True, "batch": 2},
    "compiled, batch x 4": {"compile": True, "batch": 4},
    "Liger's loss": {"liger": True}, "compiled, Liger's loss": {"compile": True, "liger": True},
    **{f"compiled, {each}": {"compile": True, "attention": each} for each in ATTENTIONS},
    "checkpointing": {"activation_checkpointing": True},
    "compiled, checkpointing": {"compile": True, "activation_checkpointing": True},
    "both, batch x 4": {"compile": True, "activation_checkpointing": True, "batch": 4},
}  # fmt: skip
"""Rows of ``--grid``, ``finetune`` with other settings: what differs from the options."""


def grid(asked: argparse.Namespace) -> None:
    """A row of ``--grid``; graph breaks on standard error."""
    from trainium_workloads.finetune.train import FineTuning
    from trainium_workloads.training.backends import Backend
    from trainium_workloads.training.task import Loss

    for each in ATTENTIONS if asked.attention else ():
        getattr(torch.backends.cuda, f"enable_{each}_sdp")(each == asked.attention)
    if asked.blocks:
        Backend.compile = lambda _, model: [  # type: ignore[method-assign]
            each.compile() for each in model.modules() if type(each).__name__ in model._no_split_modules
        ]
    if asked.liger:
        from liger_kernel import transformers as liger

        _compare(asked, liger.LigerFusedLinearCrossEntropyLoss(reduction="sum"))
        liger.apply_liger_kernel_to_llama(rope=False, rms_norm=False, swiglu=False)
        FineTuning.loss = (
            lambda _, model, batch: Loss(  # type: ignore[method-assign]
                model(batch["tokens"][:, :-1], shift_labels=batch["tokens"][:, 1:].contiguous(), use_cache=False).loss
            )
        )
    finetune(asked, "full")
    breaks = torch._dynamo.utils.counters["graph_break"]
    print(f"    {sum(breaks.values())} graph breaks {[each[:120] for each in breaks][:3]}", file=sys.stderr)


def _compare(asked: argparse.Namespace, fused: Callable[..., Any]) -> None:
    """Raise an error where a fused loss or its gradients differ from ours in FP32."""
    from trainium_workloads.finetune.train import _CrossEntropy

    width, words = (SIZES[asked.device][each] for each in ("hidden_size", "vocab_size"))
    states, head = (torch.randn(count, width, device=asked.device) / 9 for count in (512, words))
    targets, found = torch.randint(words, (512,), device=asked.device), []
    for of in (lambda x, head: _CrossEntropy.apply(x @ head.T, targets), lambda x, head: fused(head, x, targets)):
        states, head = (each.detach().requires_grad_() for each in (states, head))
        total = of(states, head)
        total.backward()
        found.append([total.detach(), states.grad, head.grad])
    errors = [float((mine - other).norm() / mine.norm()) for mine, other in zip(*found, strict=True)]
    print(f"    Liger's loss and gradients in FP32: relative errors {errors}", file=sys.stderr)
    if max(errors) > 1e-5:
        raise ValueError("Liger's loss is another one")


CONTESTANTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "finetune": lambda asked: finetune(asked, "full"),
    "finetune --sharding none": lambda asked: finetune(asked, "none"),
    "Trainer": trainer,
    "loop": loop,
    "grid": grid,
}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--ranks", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16", help="default: %(default)s")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--activation-checkpointing", action="store_true")
    parser.add_argument("--lora", type=int, default=0, metavar="RANK")
    parser.add_argument("--steps", type=int, default=20, help="measured steps of a turn; default: %(default)s")
    parser.add_argument("--skip", type=int, default=5, help="first, unmeasured steps; default: %(default)s")
    parser.add_argument("--turns", type=int, default=3, help="turns of each contestant; default: %(default)s")
    parser.add_argument("--profile", action="store_true", help="print the dearest operations instead of the table")
    parser.add_argument("--only", nargs="+", choices=list(CONTESTANTS)[:-1], default=list(CONTESTANTS)[:-1])
    parser.add_argument("--grid", type=float, default=0.0, help="seconds in which a turn of each setting may begin")
    parser.add_argument("--against", type=Path, help="another tree's directory workloads, whose finetune runs beside")
    asked = parser.parse_args()
    asked.rows = ROWS[asked.device]
    asked.examples = (asked.skip + asked.steps) * asked.rows[1] * asked.ranks
    runs = [(name, HERE) for name in asked.only]
    runs += [(name, asked.against) for name in asked.only if asked.against and name.startswith("finetune")]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["transformers.trainer", "transformers.models.llama.modeling_llama"])
    with tempfile.TemporaryDirectory() as place:
        asked.place = Path(place)
        told = context.SimpleQueue()
        _run(context, _make_model, asked, told)
        asked.card, asked.parameters = told.get()
        turns: dict[str, list[Measured]] = {}
        until = time.monotonic() + asked.grid
        for label, changes in GRID.items() if asked.grid else ():
            row = argparse.Namespace(**{**vars(asked), "blocks": 0, "attention": 0, "liger": 0, "batch": 1, **changes})
            row.rows, row.examples = (asked.rows[0], asked.rows[1] * row.batch), asked.examples * row.batch
            # One fails where Liger is not installed, or a kernel does not take the shape.
            with contextlib.suppress(SystemExit):
                if time.monotonic() < until:
                    seconds, memory = _turn(context, "grid", HERE, row)
                    turns[label] = [(seconds / row.batch, memory)]
            print(f"  {label}: {'measured' if label in turns else 'failed, or no time'}", file=sys.stderr, flush=True)
        for _ in range(0 if asked.grid else asked.turns):
            for name, tree in runs:
                label = f"{name}{'' if tree == HERE else f' of {tree}'}"
                turns.setdefault(label, []).append(_turn(context, name, tree, asked))
                print(f"  {label}: {turns[label][-1][0]:.4f} s a step", file=sys.stderr, flush=True)
    _print(turns, asked)
    return 0


def _print(turns: dict[str, list[Measured]], asked: argparse.Namespace) -> None:
    seconds = {name: statistics.median(second for second, _ in of) for name, of in turns.items()}
    length, batch = asked.rows
    tokens = length * batch * asked.ranks
    # A frozen weight has no gradient. A position attends to half of the others, on average.
    of_weights = (4 if asked.lora else 6) * asked.parameters
    per_token = of_weights + 6 * length * SIZES[asked.device]["num_hidden_layers"] * SIZES[asked.device]["hidden_size"]
    peak = next((value for card, value in PEAKS.items() if card in asked.card), None)
    print(f"{asked.card}, {asked.parameters / 1e6:,.0f} million parameters, {' '.join(sys.argv[1:])}")
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}")
    print(f"{'':26s} {'tokens/s':>10s} {'of peak':>8s} {'GB':>7s} {'to Trainer':>11s} {'to loop':>8s}  spread")
    for name, of in turns.items():
        each = sorted(second for second, _ in of)
        share = f"{per_token * tokens / seconds[name] / peak / asked.ranks:.1%}" if peak else "-"
        ratios = [f"{seconds[other] / seconds[name]:.3f}" if other in seconds else "-" for other in ("Trainer", "loop")]
        row = f"{name:26s} {tokens / seconds[name]:10,.0f} {share:>8s} {max(of, key=lambda turn: turn[1])[1]:7.2f}"
        row += "".join(f" {ratio:>{width}s}" for ratio, width in zip(ratios, (11, 8), strict=True))
        print(f"{row}  {each[-1] / each[0] - 1:.1%}")


def _make_model(asked: argparse.Namespace, told: Any, _: int) -> None:
    torch.manual_seed(0)
    configured = transformers.LlamaConfig(**SIZES[asked.device], max_position_embeddings=4096)
    with torch.device(asked.device):
        model = transformers.AutoModelForCausalLM.from_config(configured, dtype=torch.bfloat16)
    model.save_pretrained(asked.place / "model")
    told.put((torch.cuda.get_device_name() if asked.device == "cuda" else "CPU", model.num_parameters()))


def _turn(context: Any, name: str, tree: Path, asked: argparse.Namespace) -> Measured:
    told, port = context.SimpleQueue(), random.randrange(15_000, 30_000)
    _run(context, _rank, name, tree, asked, port, told, ranks=asked.ranks)
    found = [told.get() for _ in range(asked.ranks)]
    return statistics.fmean(seconds for seconds, _ in found), max(memory for _, memory in found)


def _run(context: Any, work: Callable[..., None], *arguments: Any, ranks: int = 1) -> None:
    running = [context.Process(target=work, args=(*arguments, rank)) for rank in range(ranks)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    if any(each.exitcode for each in running):
        sys.exit("a contestant failed; it says above why")


def _rank(name: str, tree: Path, asked: argparse.Namespace, port: int, told: Any, rank: int) -> None:
    if asked.ranks > 1:
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": asked.ranks, "MASTER_PORT": port}
        os.environ.update({"MASTER_ADDR": "127.0.0.1", **{each: str(value) for each, value in place.items()}})
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    sys.path.insert(0, str(tree))
    watch = Watch(asked)
    register_optimizer_step_post_hook(watch)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # step lines
        CONTESTANTS[name](asked)
    told.put(watch.measured)


if __name__ == "__main__":
    sys.exit(main())
