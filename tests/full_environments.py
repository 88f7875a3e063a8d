"""The environments, each with every feature that it can have."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import config_tables
import yaml
from golden import ROOT

from trainium_eks.model.config.stack_config import StackConfig
from trainium_eks.plan.recording.process import record

OF_EACH = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
_EVERYWHERE = OF_EACH.pop("everywhere")
TOPIC_KEY = _EVERYWHERE["observability"]["metrics"]["alerts"]["topicKeyArn"]
DATA_BUCKET, DATA_KEY = (OF_EACH["dev"]["namespaces"][0][key] for key in ("dataBucket", "dataBucketKeyArn"))

_OFF = [
    field.alias or name
    for name, field in StackConfig.model_fields.items()
    for section in config_tables.models(field.annotation)
    if field.default is None and not any(each.is_required() for each in section.model_fields.values())
]
"""Sections that an environment lacks by default, and that need nothing said."""


def given(stack):
    """Return the keys of the config in which an environment with all features differs."""
    own = {**{each: {} for each in _OFF}, **_EVERYWHERE, **OF_EACH[stack]}
    return {f"trainium-eks:{key}": value for key, value in own.items()}


@cache
def recorded(stack):
    """Return the recording of an environment with all features on."""
    return changed(stack, dict)


def changed(stack, change, *, dry_run=False):
    """Return the same with a change of the whole config, full key to text."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in given(stack).items()}

    def turn_on(settings):
        return replace(settings, config=change({**settings.config, **texts}))

    return record(ROOT, stack, adjust=turn_on, dry_run=dry_run)
