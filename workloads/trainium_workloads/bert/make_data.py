"""Writes a data set of made-up examples in the form of the real one: for trials of staging and reading.

python -m trainium_workloads.bert.make_data --to my-wikicorpus --examples 20000 --seq-len 32 --vocab-size 256
"""

import argparse
import sys
from pathlib import Path

from trainium_workloads.bert import synthetic, wikicorpus
from trainium_workloads.training.refusal import Refusal, guarded


def main() -> int:
    """Write the shards."""
    parser = argparse.ArgumentParser(prog="make_data", description=__doc__.partition("\n")[0])
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="is made if need be")
    parser.add_argument("--examples", type=int, default=20_000, help="default: %(default)s")
    parser.add_argument("--shards", type=int, default=4, help="files; default: %(default)s")
    parser.add_argument("--seq-len", type=int, default=128, help="tokens of an example; default: %(default)s")
    parser.add_argument("--max-pred-len", type=int, help="masked words of an example; default: 15 %% and a little")
    parser.add_argument("--vocab-size", type=int, default=30522, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    asked = parser.parse_args()
    least = {"shards": 1, "seq_len": synthetic.SHORTEST, "vocab_size": synthetic.SMALLEST_VOCABULARY}
    wrong = [
        f"--{name.replace('_', '-')} must be {smallest} or more, not {getattr(asked, name)}"
        for name, smallest in {"examples": asked.shards, **least}.items()
        if getattr(asked, name) < smallest
    ]
    if wrong:
        raise Refusal("; ".join(wrong))
    asked.to.mkdir(parents=True, exist_ok=True)
    for shard in range(asked.shards):
        columns = synthetic.make(
            asked.examples // asked.shards + (shard < asked.examples % asked.shards),
            sequence=asked.seq_len,
            predictions=asked.max_pred_len or synthetic.predictions_of(asked.seq_len),
            vocabulary=asked.vocab_size,
            seed=asked.seed + shard,
        )
        wikicorpus.write_shard(asked.to / f"synthetic_training_{shard}.hdf5", columns)
    print(f"{asked.examples} examples of {asked.seq_len} tokens in {asked.shards} shards below {asked.to}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
