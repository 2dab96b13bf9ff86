"""What the cluster must know of the prod stack, which it is there to try out."""

from functools import cache

import yaml

from toolchain.cluster.paths import CHECKOUT


@cache
def cluster() -> dict[str, str]:
    """Its part `cluster`: the agents' image, the resource domain."""
    stack = yaml.safe_load((CHECKOUT / "Pulumi.prod.yaml").read_text())
    part: dict[str, str] = stack["config"]["gpu-tenancy:cluster"]
    return part
