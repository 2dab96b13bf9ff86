"""Real command lines of model servers, each with its repository and with what the server claims."""

from pathlib import Path
from typing import Any

import yaml

REAL: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
