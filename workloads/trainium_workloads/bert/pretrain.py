"""Pre-training of BERT: the 64 ranks of AWS' guide on Trainium and EKS, and any number of them.

Options have the names of that guide (``--batch_size 16 --grad_accum_usteps 32 --data_dir DIR``), and our own. Defaults
are the guide's; with ``--phase2`` its second phase's, with ``--size tiny`` for a trial on a CPU.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainium_workloads.bert import synthetic, weights
from trainium_workloads.bert.model import SIZES, Sizes
from trainium_workloads.bert.task import MadeUp, Pretraining
from trainium_workloads.bert.wikicorpus import Corpus, open_corpus
from trainium_workloads.training import backends
from trainium_workloads.training.loop import train
from trainium_workloads.training.options import Options, add_options, options_of
from trainium_workloads.training.progress import ONLY_COMPILES
from trainium_workloads.training.refusal import Refusal, guarded

# Of AWS' script (aws-neuron-samples, dp_bert_hf_pretrain), with the batches of the EKS guide: 64 ranks take 32,768
# examples a step.
PHASE_1 = Options(
    steps=28125, batch_size=16, accumulate=32, learning_rate=4e-4, warmup_steps=2000, seed=12349, keep=2, log_every=1
)
PHASE_2 = replace(PHASE_1, steps=1563, batch_size=2, accumulate=256, learning_rate=2.8e-4, warmup_steps=781)
TINY = replace(PHASE_1, steps=200, batch_size=16, accumulate=1, learning_rate=3e-3, warmup_steps=10)

_ALIASES = {
    "steps": "--max_steps",
    "accumulate": "--grad_accum_usteps",
    "learning_rate": "--lr",
    "output": "--output_dir",
    "keep": "--num_ckpts_to_keep",
}
"""The names of AWS' script for the options that all our trainings share."""


def main() -> int:
    """Train; once all steps are made, write the model for ``transformers`` into the output directory."""
    asked = _parser(sys.argv[1:]).parse_args()
    options = options_of(asked)
    task = task_of(asked, options)
    backend = backends.start(options)
    try:
        outcome = train(task, options, backend)
        if outcome.is_complete and os.environ.get(ONLY_COMPILES) != "1":
            state = backend.to_host(outcome.model.state_dict())
            if backend.rank == 0:
                print(f"the model is {weights.export(state, task.sizes, options.output)}", flush=True)
        return outcome.exit_code
    finally:
        backend.close()


def task_of(asked: argparse.Namespace, options: Options) -> Pretraining:
    """Return the training for the options.

    Raises:
        Refusal: the data is not there or has not the form that the model needs.
    """
    sizes = SIZES[asked.size]
    sizes = replace(sizes, vocabulary=asked.vocab_size or sizes.vocabulary, dropout=asked.dropout)
    sequence = asked.seq_len or (512 if asked.phase2 else None)
    wrong = []
    if (asked.data_dir is None) == (asked.synthetic is None):
        wrong.append(
            "give either --data-dir DIR ('trn stage wikicorpus-bert-128' brings one) or --synthetic N, "
            "to train on N made-up examples"
        )
    for name, given, least in (
        ("--synthetic", asked.synthetic, 1),
        ("--seq-len", sequence, synthetic.SHORTEST),
        ("--max-pred-len", asked.max_pred_len, 1),
        ("--vocab-size", sizes.vocabulary, synthetic.SMALLEST_VOCABULARY),
    ):
        if given is not None and given < least:
            wrong.append(f"{name} must be {least} or more, not {given}")
    if not 0 <= sizes.dropout < 1:
        wrong.append(f"--dropout must be 0 or more and less than 1, not {sizes.dropout}")
    if sequence and sequence > sizes.positions:
        wrong.append(f"--seq-len must be at most {sizes.positions} with --size {asked.size}, not {sequence}")
    if asked.phase2 and asked.begin_with is None:
        wrong.append("--phase2 needs --from DIR, the output directory of the first phase")
    if wrong:
        raise Refusal("; ".join(wrong))
    return Pretraining(sizes, _data(asked, options, sizes, sequence), asked.begin_with)


def _data(asked: argparse.Namespace, options: Options, sizes: Sizes, sequence: int | None) -> Corpus | MadeUp:
    if asked.synthetic is not None:
        sequence = sequence or (32 if asked.size == "tiny" else 128)
        return MadeUp(
            asked.synthetic,
            sequence=sequence,
            predictions=asked.max_pred_len or synthetic.predictions_of(sequence),
            vocabulary=sizes.vocabulary,
            seed=options.seed,
        )
    corpus = open_corpus(
        asked.data_dir,
        sequence=sequence,
        predictions=asked.max_pred_len,
        vocabulary=sizes.vocabulary,
        seed=options.seed,
    )
    if corpus.sequence > sizes.positions:
        raise Refusal(
            f"{asked.data_dir} has examples of {corpus.sequence} tokens, "
            f"more than the {sizes.positions} of --size {asked.size}"
        )
    return corpus


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """Return the script's parser; defaults depend on the given ``--size`` and ``--phase2``."""
    parser = argparse.ArgumentParser(prog="pretrain", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--size",
        "--model-size",
        "--model_size",
        choices=tuple(SIZES),
        default="large",
        help="default: %(default)s",
    )
    parser.add_argument(
        "--phase2", action="store_true", help="512 tokens an example, from what the first phase has learnt"
    )
    first, _ = parser.parse_known_args([each for each in given if each not in ("-h", "--help")])
    parser.add_argument("--data-dir", "--data_dir", type=Path, metavar="DIR", help="the HDF5 files of the data set")
    parser.add_argument("--synthetic", type=int, metavar="N", help="train on N made-up examples instead")
    parser.add_argument(
        "--from",
        dest="begin_with",
        type=Path,
        metavar="DIR",
        help="begin with these weights: an earlier training's output directory, or a .safetensors file",
    )
    parser.add_argument(
        "--seq-len", "--seq_len", type=int, metavar="N", help="tokens of an example; default: as the data set has"
    )
    parser.add_argument(
        "--max-pred-len",
        "--max_pred_len",
        type=int,
        metavar="N",
        help="hidden words of an example; default: as the data set has",
    )
    parser.add_argument(
        "--vocab-size", "--vocab_size", type=int, metavar="N", help="default: 30522, 256 of --size tiny"
    )
    parser.add_argument("--dropout", type=float, default=0.1, metavar="X", help="default: %(default)s")
    defaults = PHASE_2 if first.phase2 else TINY if first.size == "tiny" else PHASE_1
    add_options(parser, defaults, _ALIASES)
    return parser


if __name__ == "__main__":
    sys.exit(guarded(main))
