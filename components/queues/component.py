"""The components that declare Kueue's objects."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from components.base.identity import Identity
from components.base.manifest import component_type, register
from components.queues import clusters, objects
from components.queues.spec import CohortSpec, QueuesSpec, tenants_of


@dataclass(frozen=True, kw_only=True)
class QueuesArgs:
    """Holds the arguments. `node_selectors` maps each pool to the labels of its nodes."""

    spec: QueuesSpec
    node_selectors: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, kw_only=True)
class LocalQueuesArgs:
    """Holds the arguments. `tenants` maps each tenant to the resources that declare its namespace. `namespace` is the
    namespace of Kueue."""

    spec: QueuesSpec
    tenants: Mapping[str, pulumi.Resource]
    namespace: str


class Queues(pulumi.ComponentResource):
    """The ClusterQueues with their flavors, topologies, cohorts and admission checks, and the
    WorkloadPriorityClasses."""

    def __init__(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        spec = args.spec
        super().__init__(component_type("Queues"), name, {"spec": spec.model_dump(mode="json")}, opts)
        for key, priority in spec.workload_priorities.items():
            register(objects.workload_priority_class(key, priority), f"{name}-priority-{key}", parent=self)
        flavors = self._flavors(name, args)
        cohorts = self._cohorts(name, spec, flavors)
        checks = self._checks(name, spec)
        dispatching = self._dispatching(name, spec)
        tenants = tenants_of(spec)
        for key, queue in spec.cluster_queues.items():
            named = [flavors[flavor] for flavor in queue.quotas]
            named += [cohorts[queue.cohort]] if queue.cohort else []
            named += [checks[check.name] for check in queue.admission_checks]
            named += [dispatching[key]] if queue.clusters else []
            declared = objects.cluster_queue(key, queue, tenants[key])
            register(declared, f"{name}-cluster-{key}", parent=self, depends_on=named)
        self.register_outputs({})

    def _flavors(self, name: str, args: QueuesArgs) -> dict[str, pulumi.Resource]:
        topologies = {
            key: register(objects.topology(key, topology), f"{name}-topology-{key}", parent=self)
            for key, topology in args.spec.topologies.items()
        }
        flavors: dict[str, pulumi.Resource] = {}
        for key, flavor in args.spec.flavors.items():
            labels = args.node_selectors[flavor.pool] if flavor.pool is not None else {}
            named = [topologies[flavor.topology_name]] if flavor.topology_name is not None else []
            declared = objects.flavor(key, flavor, labels)
            flavors[key] = register(declared, f"{name}-flavor-{key}", parent=self, depends_on=named)
        return flavors

    def _cohorts(
        self, name: str, spec: QueuesSpec, flavors: Mapping[str, pulumi.Resource]
    ) -> dict[str, pulumi.Resource]:
        """Registers the cohorts with settings. Also registers the cohorts without settings that a queue or another
        cohort names. Cohorts may be in any order, because Kueue accepts a cohort before its parent exists.
        """
        named = {queue.cohort for queue in spec.cluster_queues.values() if queue.cohort}
        named |= {cohort.parent_name for cohort in spec.cohorts.values() if cohort.parent_name}
        cohorts: dict[str, pulumi.Resource] = {}
        for key in sorted(named | spec.cohorts.keys()):
            cohort = spec.cohorts.get(key, CohortSpec())
            known = [flavors[flavor] for flavor in cohort.quotas]
            declared = objects.cohort(key, cohort)
            cohorts[key] = register(declared, f"{name}-cohort-{key}", parent=self, depends_on=known)
        return cohorts

    def _checks(self, name: str, spec: QueuesSpec) -> dict[str, pulumi.Resource]:
        checks: dict[str, pulumi.Resource] = {}
        for key, check in spec.admission_checks.items():
            declared = objects.provisioning_request_config(key, check)
            config = register(declared, f"{name}-provisioning-{key}", parent=self)
            checks[key] = register(
                objects.admission_check(key), f"{name}-check-{key}", parent=self, depends_on=[config]
            )
        return checks

    def _dispatching(self, name: str, spec: QueuesSpec) -> dict[str, pulumi.Resource]:
        workers = {
            key: register(clusters.multi_kueue_cluster(key, worker), f"{name}-worker-{key}", parent=self)
            for key, worker in spec.clusters.items()
        }
        checks: dict[str, pulumi.Resource] = {}
        for key, queue in spec.cluster_queues.items():
            if queue.clusters:
                declared = clusters.multi_kueue_config(key, queue.clusters)
                named = [workers[cluster] for cluster in queue.clusters]
                config = register(declared, f"{name}-dispatch-{key}", parent=self, depends_on=named)
                check = clusters.admission_check(key)
                checks[key] = register(check, f"{name}-dispatch-check-{key}", parent=self, depends_on=[config])
        return checks


class LocalQueues(pulumi.ComponentResource):
    """The tenants' LocalQueues. LocalQueues depend on the tenants, and the tenants depend on the ClusterQueues.

    Kueue does not delete a ClusterQueue while a Workload holds its quota. Pulumi deletes in reverse order of the
    dependencies. Therefore Pulumi deletes a tenant's namespace before the ClusterQueue, together with its Jobs and
    Workloads.
    """

    def __init__(self, name: str, args: LocalQueuesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        queues = args.spec.local_queues
        tenants = {key: queue.tenant for key, queue in queues.items()}
        super().__init__(component_type("LocalQueues"), name, {"tenants": tenants}, opts)
        for key, queue in queues.items():
            declared = objects.local_queue(key, queue)
            register(declared, f"{name}-{key}", parent=self, depends_on=[args.tenants[queue.tenant]])
        named = [args.tenants[tenant] for tenant in sorted(set(tenants.values()))] if args.spec.managers else []
        for manager in args.spec.managers:
            account = clusters.manager_account(manager, args.namespace, args.spec.queued_kinds, {*tenants.values()})
            Identity(f"{name}-manager-{manager}", account, pulumi.ResourceOptions(parent=self, depends_on=named))
        self.register_outputs({})
