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

from trainium_workloads.bert import make_data
from trainium_workloads.bert.config import SIZES, config_of
from trainium_workloads.bert.task import MadeUp, Pretraining
from trainium_workloads.bert.wikicorpus import Corpus, open_corpus
from trainium_workloads.model_directory import NAME, write_model
from trainium_workloads.training import backends
from trainium_workloads.training.loop import train
from trainium_workloads.training.options import ONLY_COMPILES, Options, add_option, add_options, options_of, too_small
from trainium_workloads.training.progress import say
from trainium_workloads.training.refusal import RefusalError, guarded

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
    """Train; once all steps are made, write the model for ``transformers`` below the output directory."""
    asked = _parser(sys.argv[1:]).parse_args()
    options = options_of(asked)
    task = task_of(asked, options)
    backend = backends.start(options)
    try:
        outcome = train(task, options, backend)
        if outcome.is_complete and os.environ.get(ONLY_COMPILES) != "1":
            state = backend.to_host(outcome.model.state_dict())
            if backend.rank == 0:
                write_model(outcome.model, state, options.output / NAME)
                say(f"the model is {options.output / NAME}")
        return outcome.exit_code
    finally:
        backend.close()


def task_of(asked: argparse.Namespace, options: Options) -> Pretraining:
    """Return the training for the options. Refusal: the data is not there or has not the form that the model needs."""
    wrong = []
    if (asked.data_dir is None) == (asked.synthetic is None):
        wrong.append(
            "give either --data-dir DIR ('trn stage wikicorpus-bert-128' brings one) or --synthetic N, "
            "to train on N made-up examples"
        )
    least = {"synthetic": 1, "seq_len": make_data.SHORTEST, "max_pred_len": 1}
    wrong += too_small(asked, {**least, "vocab_size": make_data.SMALLEST_VOCABULARY})
    if not 0 <= asked.dropout < 1:
        wrong.append(f"--dropout must be 0 or more and less than 1, not {asked.dropout}")
    if asked.phase2 and asked.begin_with is None:
        wrong.append("--phase2 needs --from DIR, the output directory of the first phase")
    if wrong:
        raise RefusalError("; ".join(wrong))
    config = config_of(asked.size, options.backend, vocabulary=asked.vocab_size, dropout=asked.dropout)
    sequence, predictions = asked.seq_len or (512 if asked.phase2 else None), asked.max_pred_len
    common = {"vocabulary": config.vocab_size, "seed": options.seed}
    if asked.synthetic is None:
        data: Corpus | MadeUp = open_corpus(asked.data_dir, sequence=sequence, predictions=predictions, **common)
    else:
        sequence = sequence or (32 if asked.size == "tiny" else 128)
        predictions = predictions or make_data.predictions_of(sequence)
        data = MadeUp(asked.synthetic, sequence=sequence, predictions=predictions, **common)
    if data.sequence > config.max_position_embeddings:
        most = config.max_position_embeddings
        raise RefusalError(
            f"examples have {data.sequence} tokens (--seq-len); --size {asked.size} takes at most {most}"
        )
    evaluated = None
    if asked.eval_data:
        shape = {"sequence": data.sequence, "predictions": data.predictions}
        evaluated = open_corpus(asked.eval_data, "test", **shape, **common)
    return Pretraining(config, data, asked.begin_with, evaluated)


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """Return the script's parser; defaults depend on the given ``--size`` and ``--phase2``."""
    parser = argparse.ArgumentParser(prog="pretrain", description=__doc__.partition("\n")[0])
    sizes = ("--size", "--model-size", "--model_size")
    parser.add_argument(*sizes, choices=SIZES, default="large", help="default: %(default)s")
    parser.add_argument("--phase2", action="store_true", help="512 tokens an example, from the first phase's model")
    first, _ = parser.parse_known_args([each for each in given if each not in ("-h", "--help")])
    add_option(parser, "data-dir", Path, "the HDF5 files of the data set")
    add_option(parser, "eval-data", Path, "HDF5 files to evaluate with")
    add_option(parser, "synthetic", int, "train on N made-up examples instead")
    begin = "begin with this model: a directory of transformers', or the output of an earlier training"
    parser.add_argument("--from", dest="begin_with", type=Path, metavar="DIR", help=begin)
    add_option(parser, "seq-len", int, "tokens of an example; default: as the data set has")
    add_option(parser, "max-pred-len", int, "masked words of an example; default: as the data set has")
    add_option(parser, "vocab-size", int, "default: 30522, 256 of --size tiny")
    add_option(parser, "dropout", 0.1, "share of features and attention that is dropped")
    add_options(parser, PHASE_2 if first.phase2 else TINY if first.size == "tiny" else PHASE_1, _ALIASES)
    return parser


if __name__ == "__main__":
    sys.exit(guarded(main))
