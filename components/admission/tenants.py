"""Who may ask for GPUs at all: tenants, and whoever is exempt."""

from collections.abc import Iterable

from components.admission import cel
from components.admission.policy import Scope, outside, validating
from components.base.manifest import Manifest
from tenancy.names import GPU_TENANTS, Names
from tenancy.reach import GPU_RESOURCES

_COMPONENT = "admission"


def gpu_tenants(names: Names, exempt: Iterable[str], tenants: Iterable[str]) -> Manifest:
    """In a namespace that is nobody's there is no quota: what is taken there was promised to tenants."""
    ours = " || ".join(f"k == {cel.text(resource)}" for resource in (names.gpumem, names.gpu_count))
    asks = cel.asks_for(f"k.startsWith({cel.text(GPU_RESOURCES)}) || {ours}")
    message = (
        f"this namespace is no tenant's: {GPU_RESOURCES}*, {names.gpumem} and {names.gpu_count} are for tenants; add "
        "the namespace to tenants of the stack, or remove the limits"
    )
    scope = Scope(outside([*exempt, *tenants]), {"asks-for-gpus": asks})
    return validating(_COMPONENT, GPU_TENANTS, scope, {"false": message})
