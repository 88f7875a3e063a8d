"""Settings of a SageMaker training job as options of our script.

SageMaker's training toolkit sets a variable for each channel (``SM_CHANNEL_TRAIN``), for the model's directory
(``SM_MODEL_DIR``) and for the hyper-parameters (``SM_HPS``, JSON), which it also appends to the command as ``--name
value``. Checkpoints that are to reach S3 go to the estimator's ``checkpoint_local_path``, which no variable tells:
``/opt/ml/checkpoints`` unless ``SM_CHECKPOINT`` says otherwise.
"""

import json
from collections.abc import Mapping, Sequence

from trainium_workloads.training.refusal import Refusal

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
    latter.

    Raises:
        Refusal: ``SM_HPS`` has not SageMaker's form.
    """
    if not is_here(environment):
        return list(given)
    found = ["--output", environment.get("SM_CHECKPOINT") or CHECKPOINTS]
    if not environment.get("TRN_BACKEND"):
        found += ["--backend", _backend(environment)]
    for option, names in _OPTIONS:
        value = next((environment[name] for name in names if environment.get(name)), "")
        found += [option, value] if value else []
    for name, setting in _hyper_parameters(environment).items():
        found += [f"--{name}", str(setting)]
    return _with_flags([*found, *given])


def _backend(environment: Mapping[str, str]) -> str:
    if int(environment.get("SM_NUM_NEURONS") or 0):
        return "xla"
    return "cuda" if int(environment.get("SM_NUM_GPUS") or 0) else "cpu"


def _hyper_parameters(environment: Mapping[str, str]) -> dict[str, object]:
    text = environment.get("SM_HPS") or "{}"
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Refusal(f"SM_HPS is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refusal("SM_HPS must be a JSON object: the hyper-parameters by their names")
    # The estimator's own settings travel the same way.
    return {name: value for name, value in found.items() if not name.startswith("sagemaker_")}


def _with_flags(words: Sequence[str]) -> list[str]:
    """Return ``--flag True`` as ``--flag``, ``--flag False`` as ``--no-flag``: SageMaker gives each option a value."""
    found: list[str] = []
    for word in words:
        if word in ("True", "true", "False", "false") and found and found[-1].startswith("--"):
            if word in ("False", "false"):
                found[-1] = f"--no-{found[-1].removeprefix('--')}"
        else:
            found.append(word)
    return found
