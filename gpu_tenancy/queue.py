"""The LocalQueue of a queue tenant, and the labels that the tenant's Jobs need."""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, Unpack

import pulumi

from components.base.manifest import component_type
from gpu_tenancy import arguments
from gpu_tenancy.arguments import UNGIVEN, ArgumentError
from gpu_tenancy.seat import missing_output, output
from stacks.problems import nearest
from tenancy import names
from tenancy.ledger import Ledger, LocalQueue

_KIND = "Queue"


class QueueArgs(TypedDict):
    """The arguments of a Queue. The component refers to a LocalQueue of the platform, and creates no object in the
    cluster."""

    platform: NotRequired[str]
    """The platform's stack, such as organization/gpu-tenancy/prod, which exports `ledger`."""

    ledger: NotRequired[pulumi.Input[dict[str, Any]]]
    """The output `ledger` of a Platform in the same program, or a copy of this output. Set `ledger`
    instead of `platform`."""

    queue: NotRequired[str]
    """The key of queues.local_queues in the platform's settings. Default: the component's name."""

    priority: NotRequired[str]
    """A key of queues.workload_priorities in the platform's settings: the priority of the Jobs in the queue."""


class Queue(pulumi.ComponentResource):
    """A LocalQueue of the platform, for the Jobs of a queue tenant."""

    namespace: pulumi.Output[str]
    """The tenant's namespace, in which the Jobs must be."""

    labels: pulumi.Output[dict[str, str]]
    """The labels that a Job needs: the queue, and the priority if it is given."""

    cluster_queue: pulumi.Output[str]
    """The ClusterQueue from which the Jobs get their GPUs."""

    def __init__(
        self,
        name: str,
        args: QueueArgs = UNGIVEN,
        opts: pulumi.ResourceOptions | None = None,
        **keywords: Unpack[QueueArgs],
    ) -> None:
        given = arguments.override_with_keywords(QueueArgs, args, keywords)
        problems = [
            *arguments.name_problems(QueueArgs, given),
            *arguments.choice_problems(given, "platform", "ledger"),
            *arguments.type_problems(given, platform=str, queue=str, priority=str),
        ]
        if problems:
            raise ArgumentError(_KIND, name, problems)
        super().__init__(component_type(_KIND), name, {}, opts)
        found = output(name, given, "ledger", parent=self).apply(lambda ledger: _queue(name, given, ledger))
        priority = {names.KUEUE_PRIORITY_LABEL: given["priority"]} if "priority" in given else {}
        self.namespace = found.apply(lambda queue: queue.tenant)
        self.labels = found.apply(lambda queue: {names.KUEUE_QUEUE_LABEL: queue.name, **priority})
        self.cluster_queue = found.apply(lambda queue: queue.queue)
        self.register_outputs({"namespace": self.namespace, "labels": self.labels, "clusterQueue": self.cluster_queue})


def _queue(name: str, given: Mapping[str, Any], configuration: Mapping[str, Any] | None) -> LocalQueue:
    if configuration is None:
        raise ArgumentError(_KIND, name, [missing_output(given["platform"], "ledger")])
    ledger = Ledger.from_data(configuration[names.POLICY]["ledger"])
    queues = {queue.name: queue for queue in ledger.local_queues}
    wanted: str = given.get("queue", name)
    if wanted not in queues:
        near = nearest(wanted, queues, "queues")
        raise ArgumentError(_KIND, name, [f"queue: {wanted!r} is none of the platform's local_queues; {near}"])
    return queues[wanted]
