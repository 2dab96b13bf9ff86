"""Makes random nodes, random texts, and random pods that the API server would admit."""

from fractions import Fraction
from random import Random
from typing import Any

from tenancy.quantity import parse

Spec = dict[str, Any]

GPUMEM = "example.com/gpumem"
_MIB = 2**20
_SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
_NO_SUFFIXES = ["K", "g", "i", "mi", "MI", "B", " ", "e", "Gib", "1", ".", "-", "٣"]
_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


def case(random: Random, number: int) -> dict[str, Any]:
    memory_bytes = random.choice([random.randrange(2**24, 2**42), 1024 * random.randrange(2**20, 2**28)])
    pods = [_pod(random, memory_bytes) for _ in range(random.choice([1, 1, 1, 2]))]
    return {"memory_bytes": memory_bytes, "pods": pods, "quantities": [quantity(random), str(number), f"{number}Mi"]}


def _pod(random: Random, memory_bytes: int) -> dict[str, Any]:
    containers = [_container(random, f"c{n}") for n in range(random.choice([1, 1, 2, 3]))]
    starting = [_container(random, f"i{n}") for n in range(random.choice([0, 0, 0, 1, 2, 3]))]
    for container in starting:
        if random.random() < 0.5:
            container["restartPolicy"] = "Always"
    spec: Spec = {"containers": containers} | ({"initContainers": starting} if starting else {})
    if random.random() < 0.2:
        spec["overhead"] = {"memory": _memory(random)}
    if random.random() < 0.25:
        spec["resources"] = _pod_level(random, [*containers, *starting])
    spec["priority"] = random.choice([-1000, 0, 0, 100_000, 1_000_000_000])
    if random.random() < 0.05:
        spec["priorityClassName"], spec["priority"] = random.choice(list(_CLASSES.items()))
    used = random.choice([None, 0, random.randrange(memory_bytes), _MIB * random.randrange(1, 2**13)])
    return {"pod": {"spec": spec}, "working_set_bytes": used}


def _container(random: Random, name: str) -> Spec:
    requests, limits = {}, {}
    for resource, amount in (("memory", _memory), ("cpu", _cpu)):
        what = random.randrange(5)
        if what in (1, 2, 4):
            limits[resource] = amount(random)
        if what == 2:
            requests[resource] = limits[resource]
        elif what == 3:
            requests[resource] = amount(random)
        elif what == 4:
            requests[resource] = str(parse(limits[resource]).__floor__() // 2)
    if random.random() < 0.2:
        requests[GPUMEM] = limits[GPUMEM] = random.choice(["5k", "300", "1Ki"])
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return {"name": name} | ({"resources": resources} if resources else {})


def _pod_level(random: Random, containers: list[Spec]) -> Spec:
    resources: Spec = {}
    for resource in ("memory", "cpu"):
        together = sum((_asked(c, resource) for c in containers), Fraction(0)).__ceil__()
        what = random.randrange(4)
        more = together + random.randrange(4) * _MIB
        if what in (1, 3):
            resources.setdefault("limits", {})[resource] = str(more)
        if what in (2, 3):
            resources.setdefault("requests", {})[resource] = str(random.choice([together, more]))
    return resources


def _asked(container: Spec, resource: str) -> Fraction:
    resources = container.get("resources", {})
    stated = [parse(resources.get(part, {}).get(resource, 0)) for part in ("requests", "limits")]
    return max(stated)


def _memory(random: Random) -> str:
    return random.choice(
        [
            f"{random.randrange(1, 4096)}Mi",
            f"{random.randrange(1, 64)}Gi",
            f"{random.randrange(1, 200) / 8}Gi",
            f"{random.randrange(1, 9000)}M",
            f"{random.randrange(1, 99)}e8",
            str(random.randrange(2**36)),
            f"{random.randrange(10**12)}m",
            "0",
        ]
    )


def _cpu(random: Random) -> str:
    return random.choice([f"{random.randrange(1, 9000)}m", str(random.randrange(0, 64)), f"{random.random():.3f}"])


def quantity(random: Random) -> str:
    sign = random.choice(["", "", "", "", "-", "+"])
    digits = "".join(random.choice("00123456789") for _ in range(random.choice([0, 1, 2, 3, 6, 12, 19, 25])))
    if random.random() < 0.4:
        point = random.randrange(len(digits) + 1)
        digits = f"{digits[:point]}.{digits[point:]}"
    kind = random.random()
    if kind < 0.7:
        suffix = random.choice(_SUFFIXES)
    elif kind < 0.9:
        suffix = f"{random.choice('eE')}{random.choice(['', '+', '-'])}{random.choice(['', '0', '00'])}"
        suffix += str(random.randrange(25))
    else:
        suffix = random.choice(_NO_SUFFIXES)
    return sign + digits + suffix
