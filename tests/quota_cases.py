"""Names and amounts of quotas: the model and a real API server are asked about the same ones."""

from pathlib import Path

import yaml

TAKEN, REFUSED, USELESS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).values()
