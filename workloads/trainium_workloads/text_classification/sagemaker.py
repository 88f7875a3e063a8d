"""Settings of a SageMaker training job as options of our script.

SageMaker's training toolkit sets a variable for each channel (``SM_CHANNEL_TRAIN``) and for the model's directory
(``SM_MODEL_DIR``), and appends the hyper-parameters to the command as ``--name value``. Checkpoints that are to reach
S3 go to the estimator's ``checkpoint_local_path``, which no variable tells: ``/opt/ml/checkpoints`` unless
``SM_CHECKPOINT`` says otherwise.
"""

from collections.abc import Mapping, Sequence

CHECKPOINTS = "/opt/ml/checkpoints"
"""SageMaker's default."""

_OPTIONS = (
    ("--train-data", ("SM_CHANNEL_TRAIN", "SM_CHANNEL_TRAINING")),
    ("--test-data", ("SM_CHANNEL_TEST", "SM_CHANNEL_VAL", "SM_CHANNEL_VALIDATION")),
    ("--model-dir", ("SM_CHANNEL_MODEL",)),
    ("--model-out", ("SM_MODEL_DIR",)),
    ("--results", ("SM_OUTPUT_DATA_DIR",)),
)
"""Option, and its variables: the first that is set has its value."""


def is_here(environment: Mapping[str, str]) -> bool:
    """Return whether this is a SageMaker training job."""
    return bool(environment.get("SM_MODEL_DIR"))


def arguments(environment: Mapping[str, str], given: Sequence[str]) -> list[str]:
    """Return the command's arguments: SageMaker's settings, then the given arguments, which win. Elsewhere only the
    latter."""
    if not is_here(environment):
        return list(given)
    found = ["--output", environment.get("SM_CHECKPOINT") or CHECKPOINTS]
    if not environment.get("TRN_BACKEND"):
        counts = {"xla": "SM_NUM_NEURONS", "cuda": "SM_NUM_GPUS"}
        found += ["--backend", next((name for name, each in counts.items() if int(environment.get(each) or 0)), "cpu")]
    for option, names in _OPTIONS:
        value = next((environment[name] for name in names if environment.get(name)), "")
        found += [option, value] if value else []
    for word in given:
        # SageMaker gives each option a value: "--flag True" is --flag, and "--flag False" is --no-flag.
        if found[-1].startswith("--") and word in ("True", "true"):
            continue
        if found[-1].startswith("--") and word in ("False", "false"):
            found[-1] = f"--no-{found[-1].removeprefix('--')}"
        else:
            found.append(word)
    return found
