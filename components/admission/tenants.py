"""Who may ask for GPUs at all, and by which name where a quota counts them."""

from collections.abc import Collection, Iterable

from components.admission import cel
from components.admission.policy import Scope, outside, validating, within
from components.base.manifest import Manifest
from tenancy.names import COUNTED_GPUS, GPU_TENANTS, Names
from tenancy.reach import COUNTED_RESOURCES, GPU_RESOURCES

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


def counted_gpus(tenants: Collection[str]) -> list[Manifest]:
    """Tenants whose pods need no budget ask for what their ResourceQuota counts; none where there is no such tenant."""
    counted = ", ".join(map(cel.text, COUNTED_RESOURCES))
    others = cel.asks_for(f"{cel.is_the_plugins('k')} && !(k in [{counted}])")
    message = (
        f"the quota of this tenant counts {' and '.join(COUNTED_RESOURCES)}: ask for one of these, or make the tenant "
        "one that queues for its GPUs"
    )
    scope = Scope(within(tenants), {"asks-for-others": others})
    return [validating(_COMPONENT, COUNTED_GPUS, scope, {"false": message})] if tenants else []
