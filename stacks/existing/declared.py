"""Lists objects of a stack from its settings alone, without a preview: namespaces, PriorityClasses, quotas and
queues.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from components import kueue, tenant
from components.base import system
from components.priorities import existing_class, priority_class
from components.queues.objects import cluster_queue, local_queue
from components.queues.spec import tenants_of
from stacks.existing.objects import Declared, identity
from stacks.platform import tenant_args
from stacks.settings import StackSettings
from tenancy import names
from tenancy.admission.namespaces import exemption


def declared(settings: StackSettings, stack: str) -> list[Declared]:
    """Returns the objects that a first rollout of the stack would create or patch."""
    mark = names.stack_mark(names.PROJECT, stack)
    made = (_annotated(each, names.STACK, mark) for each in _created(settings))
    patched = (_annotated(each, names.FIELD_MANAGER, names.field_manager(mark)) for each in _patched(settings))
    return [
        *(Declared(identity(each), each) for each in made),
        *(Declared(identity(each), each, is_patch=True) for each in patched),
    ]


def _annotated(manifest: Mapping[str, Any], annotation: str, value: str) -> dict[str, Any]:
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), annotation: value}}}


def _created(settings: StackSettings) -> Iterator[Mapping[str, Any]]:
    for name, args in tenant_args(settings, settings.ledger()).items():
        if not args.observed:
            yield tenant.quota(name, args)
    yield from (priority_class(name, spec) for name, spec in settings.priorities.items() if spec.create)
    if settings.queues is not None:
        tenants = tenants_of(settings.queues)
        for name, queue in settings.queues.cluster_queues.items():
            yield cluster_queue(name, queue, tenants[name])
        yield from (local_queue(name, spec) for name, spec in settings.queues.local_queues.items())


def _patched(settings: StackSettings) -> Iterator[Mapping[str, Any]]:
    home = settings.cluster.system_namespace
    yield system.namespace(home, "restricted")
    if settings.exporter is not None or settings.memory_pools:
        yield system.node_namespace(names.node_agent_namespace(home))
    if settings.kueue is not None:
        yield kueue.namespace(settings.kueue.namespace)
    yield from (tenant.namespace(*each) for each in tenant_args(settings, settings.ledger()).items())
    yield from (existing_class(name, spec) for name, spec in settings.priorities.items() if not spec.create)
    yield from (exemption(name) for name in (settings.admission.exempt_namespaces if settings.admission else ()))
