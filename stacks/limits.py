"""What the engine and Kubernetes cannot take, told before it is met."""

import json
from collections.abc import Mapping
from typing import Any

from components.agents.reconcile import ledger_config_map
from tenancy.ledger import Ledger
from tenancy.names import PROJECT

# The engine hands the whole configuration to the program, and to the policy pack, in one variable of the environment
# (PULUMI_CONFIG), and Linux takes 128 KiB for one (MAX_ARG_STRLEN in include/uapi/linux/binfmts.h): beyond that it ends
# with "fork/exec: argument list too long". The rest is for what Pulumi.yaml adds.
MOST_BYTES = 126 * 1024
# Of all that a ConfigMap holds (k8s.io/kubernetes pkg/apis/core/validation ValidateConfigMap, core.MaxSecretSize): what
# comes by files meets this one.
MOST_LEDGER_BYTES = 1024 * 1024
_SHOWN = 3


def problems(raw: Mapping[str, Any]) -> list[str]:
    """What a stack's configuration has too much of."""
    sizes = {name: _size(value) for name, value in raw.items()}
    size = sum(sizes.values())
    if size <= MOST_BYTES:
        return []
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_SHOWN]
    parts = ", ".join(f"{PROJECT}:{name} {sizes[name]}" for name in largest)
    return [
        f"the configuration takes {size} bytes as the engine hands it on, {MOST_BYTES} at most: {parts}; "
        f"move {size - MOST_BYTES} bytes or more of it into files that {PROJECT}:files names: they are not handed on, "
        "and hold what stands under config here"
    ]


def ledger_problems(ledger: Ledger) -> list[str]:
    """What the ledger has too much of for the object that it is in."""
    data = ledger_config_map(ledger, "", advertised=False)["data"]
    size = sum(len(text.encode()) for text in data.values())
    if size <= MOST_LEDGER_BYTES:
        return []
    return [
        f"the ledger takes {size} bytes, and a ConfigMap of Kubernetes {MOST_LEDGER_BYTES} at most: "
        f"{len(ledger.tenants)} tenants, {len(ledger.seats)} seats; give alike seats replicas or shorter names, or "
        "write a second stack with pools and tenants of its own"
    ]


def _size(value: Any) -> int:
    """As the text of a value within JSON, which is JSON itself, as Go's encoding/json writes it."""
    text = value if isinstance(value, str) else _json(value)
    return len(_json(text).encode(errors="surrogatepass")) + len(f'"{PROJECT}:pools":,')


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
