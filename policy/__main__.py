"""Starts the policy pack for Pulumi (`--policy-pack <this folder>`). The other modules of the policy pack do not need
Pulumi's engine."""

import io
import sys
from pathlib import Path

# Pulumi puts the pack's folder on sys.path. The repository's folder replaces the pack's folder on sys.path, so that no
# module has two names. A pack without the repository (toolchain/pack.py) contains all packages in its folder.
_HERE = Path(__file__).resolve().parent
sys.path[0] = str(_HERE if (_HERE / "policy").is_dir() else _HERE.parent)

from pulumi_policy import PolicyPack  # noqa: E402

from policy.pack import DESCRIPTION, TAGS, stack_policy  # noqa: E402
from tenancy.names import POLICY_PACK  # noqa: E402

# The SDK prints its port and does not flush stdout. If stdout is a pipe, the engine would wait for the port without
# end.
sys.stdout = io.TextIOWrapper(io.FileIO(sys.stdout.fileno(), "wb", closefd=False), write_through=True)

PolicyPack(
    name=POLICY_PACK,
    policies=[stack_policy()],
    display_name="GPU tenancy",
    description=DESCRIPTION,
    provider="kubernetes",
    tags=TAGS,
)
