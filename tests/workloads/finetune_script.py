"""Several fine-tunings in a row in the same ranks: imports and forks are paid once."""

import json
import os
import sys
from pathlib import Path

from trainium_workloads.finetune import models, train
from trainium_workloads.training.refusal import guarded
from trainium_workloads.training.updates import Updates


def main():
    models._SMALL = int(os.environ.get("SMALL_BYTES", models._SMALL))  # type: ignore[misc]
    runs = json.loads(Path(sys.argv[1]).read_text())
    port = int(os.environ["MASTER_PORT"])
    for number, (name, arguments) in enumerate(runs.items()):
        # A server of the group before may still hold its port.
        os.environ["MASTER_PORT"] = str(port + number)
        sys.argv = ["finetune", *arguments]
        print(f"run {name}", flush=True)
        if "xla" in arguments:
            _count_graphs()
        if code := guarded(train.main):
            return code
    return 0


def _count_graphs():
    make = Updates.make

    def counted(self, step, batches):
        from torch_xla.debug import metrics

        values = make(self, step, batches)
        print(f"graphs {(metrics.metric_data('CompileTime') or [0])[0]}", flush=True)
        return values

    Updates.make = counted  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    sys.exit(main())
