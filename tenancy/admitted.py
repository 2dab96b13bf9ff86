"""Judges the manifest of a pod in a preview. The admission policies in the cluster have the same rules.

The package tenancy/admission has the same rules in CEL. The test tests/e2e/api/test_one_judgement.py compares the
rules in Python with those in CEL, and lists facts that only the cluster knows.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from tenancy import names, policy_names, reach
from tenancy.frameworks import kinds_of
from tenancy.ledger import Ledger, Seat, Tenant
from tenancy.quantity import parse, whole
from tenancy.seat_sizes import SeatSizes
from tenancy.workload import Manifest, containers_of, largest_at_once, map_at, maps_at, text_at, texts_at, value_or

# The Pod Security level baseline permits a container to add these capabilities
# (https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline).
_CAPABILITIES = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
    *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)


@dataclass(frozen=True)
class Refusal:
    """A violation by a pod, and the change to the pod that removes the violation. `part` is the part of an admission
    policy that would deny the pod.

    `of_budget` is True if the pod asks for a wrong amount of memory or for a wrong number of devices.
    """

    part: str
    message: str
    of_budget: bool = False

    @property
    def policy(self) -> str:
        """Returns the name of the admission policy in the cluster."""
        return policy_names.policy_of(self.part)


@dataclass(frozen=True)
class PodJudge:
    """Judges a pod in the namespace `namespace`. The pod has the metadata and the spec of `template`.

    With `queued`, the pod counts as a pod that Kueue holds back. `handlers` maps each known RuntimeClass to its
    handler. Every method may raise QuantityError and ShapeError.
    """

    ledger: Ledger
    namespace: str
    template: Manifest
    queued: bool = False
    handlers: Mapping[str, str] = field(default_factory=dict)

    def refusals(self) -> list[Refusal]:
        """Returns the reasons why admission would deny the pod. If admission would allow the pod, returns an empty
        list.
        """
        found = [
            *self._seen_of_pod(),
            *self._device_choice(),
            *(self._placed() if self._devices else ()),
            *self._budget(),
            *self._seat_label(),
            *self._queue(),
            *self._without_budget(),
            *self._owns_its_node(),
            *self._class(),
        ]
        if not found or self._is_exempt:
            return []
        return [replace(each, message=f"{each.message}{self._or_exempt}") for each in found]

    @property
    def _or_exempt(self) -> str:
        """Returns the way out for programs that the cluster itself needs, such as a device plugin. They can have no
        exempt namespace that is a tenant's, or in which everything without a namespace ends."""
        if self._tenant is not None or self.namespace == "default":
            return ""
        exempt = f"add {self.namespace} to admission.exempt_namespaces of the platform's stack"
        return f"; or, for a driver, a device plugin or a part of the cluster, {exempt}"

    @property
    def _pod_spec(self) -> Manifest:
        return map_at(self.template, "spec")

    @property
    def _containers(self) -> list[Manifest]:
        return list(containers_of(self._pod_spec))

    @property
    def _annotations(self) -> Manifest:
        return map_at(self.template, "metadata", "annotations")

    @property
    def _devices(self) -> int:
        return self.ledger.admission.devices if self.ledger.admission else 0

    @property
    def _is_exempt(self) -> bool:
        return self.namespace in (names.EXEMPT_BY_NAME, *self.ledger.exempt_namespaces)

    @property
    def _tenant(self) -> Tenant | None:
        return self.ledger.tenants_by_name.get(self.namespace)

    @property
    def _needs_budget(self) -> bool:
        return self.namespace not in self.ledger.tenants_without_budget

    @cached_property
    def _routes(self) -> list[str]:
        return list(reach.routes(self._pod_spec, self.ledger.names))

    @cached_property
    def _said(self) -> set[str]:
        choosing = (c for c in self._containers if reach.chooses_device(c, self.ledger.names))
        return {reach.choice_by_environment(c) for c in choosing} | (
            {*node_access_fields(self._pod_spec)} if self._is_held else set()
        )

    @property
    def _is_held(self) -> bool:
        return self._tenant is not None and self._tenant.is_held

    @cached_property
    def _has_budget(self) -> bool:
        return any(self._asks(c, self.ledger.names.gpumem) for c in self._containers)

    @cached_property
    def _counts(self) -> bool:
        return any(self._asks(c, self.ledger.names.gpu_count) for c in self._containers)

    @cached_property
    def _asks_for_device(self) -> bool:
        return reach.asks_for_device(self._pod_spec, self.ledger.names)

    def _asks(self, container: Manifest, resource: str) -> bool:
        return bool(reach.resources_asked_for(container, lambda called: called == resource))

    def _amount(self, resource: str, *lists: str) -> int:
        return sum(amount(c, resource) for c in containers_of(self._pod_spec, *lists))

    @cached_property
    def _spread(self) -> int:
        return max(1, self._amount(self.ledger.names.gpu_count, "containers"))

    def _seen_of_pod(self) -> Iterator[Refusal]:
        if maps_at(self._pod_spec, "ephemeralContainers"):
            yield Refusal("", "ephemeralContainers are added to a pod that runs; remove them")
        if names.MIRROR_ANNOTATION in self._annotations:
            yield Refusal(
                policy_names.MIRROR_PODS, f"the annotation {names.MIRROR_ANNOTATION} is for kubelets; remove it"
            )

    def _device_choice(self) -> Iterator[Refusal]:
        prefix = self.ledger.names.device_annotation_prefix
        for container in self._containers:
            if reach.chooses_device(container, self.ledger.names):
                yield Refusal(
                    policy_names.DEVICE_CHOICE,
                    f"container {container.get('name')} chooses its device by {names.VISIBLE_DEVICES}; remove it: the "
                    "scheduler gives one",
                )
        for annotation in self._annotations:
            if annotation.startswith(prefix):
                yield Refusal(
                    policy_names.DEVICE_CHOICE, f"the annotation {annotation} is the scheduler's to write; remove it"
                )
            elif re.fullmatch(reach.DEVICE_ANNOTATIONS, annotation):
                yield Refusal(
                    policy_names.DEVICE_CHOICE, f"the annotation {annotation} has a runtime add devices; remove it"
                )

    def _placed(self) -> Iterator[Refusal]:
        ours = text_at(self._pod_spec, "schedulerName") == names.SCHEDULER_NAME
        gpumem, gpu_count = self.ledger.names.gpumem, self.ledger.names.gpu_count
        if not self._has_budget:
            wrong = {f"schedulerName {names.SCHEDULER_NAME} is for pods with {gpumem}; remove it": ours}
        else:
            blind = [
                c for c in self._containers if not self._chooses(c) and not reach.sees_its_device(c, self.ledger.names)
            ]
            runtime = text_at(self._pod_spec, "runtimeClassName") or names.GPU_RUNTIME_CLASS
            wrong = {
                f"nodeName {self._pod_spec.get('nodeName')} goes past the scheduler that places {gpumem} by device; "
                "use nodeSelector": bool(text_at(self._pod_spec, "nodeName")),
                f"runtimeClassName {runtime} is not {names.GPU_RUNTIME_CLASS}, under which a pod with {gpumem} runs; "
                "remove it": runtime != names.GPU_RUNTIME_CLASS,
                f"it sets {names.VISIBLE_DEVICES}; remove it: who asks for {gpumem} is shown its device": bool(blind),
                f"an init container asks for {gpu_count}, which is for the whole pod; move it to a container": bool(
                    self._amount(gpu_count, "initContainers")
                ),
            }
        yield from (Refusal(policy_names.DEVICE_PLACED, message) for message, holds in wrong.items() if holds)
        if self._has_budget:
            yield from self._spreads()

    def _spreads(self) -> Iterator[Refusal]:
        gpumem, gpu_count = self.ledger.names.gpumem, self.ledger.names.gpu_count
        if any(amount(c, gpumem) % self._spread for c in self._containers):
            message = f"a container's {gpumem} does not divide by its {self._spread} {gpu_count}; make it a multiple"
            yield Refusal(policy_names.DEVICE_PLACED, message, of_budget=True)
        if self._spread > self._devices:
            message = f"it asks for {self._spread} {gpu_count}, a node has {self._devices}; lower it"
            yield Refusal(policy_names.DEVICE_PLACED, message, of_budget=True)

    def _chooses(self, container: Manifest) -> bool:
        return reach.chooses_device(container, self.ledger.names)

    def _budget(self) -> Iterator[Refusal]:
        gpumem, gpu_count = self.ledger.names.gpumem, self.ledger.names.gpu_count
        routes = [route for route in self._routes if route not in self._said]
        if (asked := self._resources()) and self._tenant is None:
            yield Refusal(
                policy_names.GPU_TENANTS,
                f"it asks for {asked[0]}, and namespace {self.namespace} is no tenant's; add it to tenants of the "
                "platform's stack, or remove the limit",
            )
        elif routes and self._needs_budget and not self._has_budget:
            yield Refusal(
                policy_names.GPU_BUDGET,
                f"{routes[0]} and so reaches a GPU without a budget; add {gpumem} (MiB) to the limits, or list "
                "the workload under residents, on_demand or unbudgeted of the platform's stack",
            )
        elif self._runs_under_nvidia and self._needs_budget:
            yield Refusal(
                policy_names.DEVICE_RUNTIMES,
                f"runtimeClassName {self._pod_spec.get('runtimeClassName')} is NVIDIA's runtime, and the pod has no "
                f"budget; remove it or add {gpumem} (MiB) to the limits",
            )
        elif self._counts and not self._has_budget:
            yield Refusal(
                policy_names.GPU_COUNT_USE, f"{gpu_count} spreads a pod's {gpumem}, of which it has none; remove it"
            )
        elif self._has_budget:
            yield from self._size()
            yield from self._whole_devices()

    def _resources(self) -> list[str]:
        ours = (self.ledger.names.gpumem, self.ledger.names.gpu_count)
        return [
            r
            for c in self._containers
            for r in reach.resources_asked_for(c, lambda r: reach.is_nvidias_gpu(r) or r in ours)
        ]

    @property
    def _runs_under_nvidia(self) -> bool:
        handler = self.handlers.get(text_at(self._pod_spec, "runtimeClassName"), "")
        return reach.RUNTIME in handler and not self._asks_for_device

    def _size(self) -> Iterator[Refusal]:
        gpumem = self.ledger.names.gpumem
        largest = max((pool.device_mib for pool in self.ledger.pools), default=0)
        most = largest * (self._spread if self._devices else 1)
        starting = [amount(c, gpumem) for c in containers_of(self._pod_spec, "initContainers")]
        if self._needs_budget and max(self._amount(gpumem, "containers"), *starting, 0) > most:
            message = f"it asks for more {gpumem} than a device offers ({largest} MiB); lower it"
            yield Refusal(policy_names.GPU_BUDGET, message, of_budget=True)
        elif self.ledger.seats_of(self.namespace) and self.namespace not in self.ledger.queue_tenants:
            yield from self._not_a_seat()

    def _whole_devices(self) -> Iterator[Refusal]:
        """Yields a violation if the pod asks for a whole device.

        A pod with a seat that requested a whole device could use every device of its node.
        """
        devices = int(largest_at_once(self._pod_spec, _whole_devices_of))
        if devices > self._spread:
            yield Refusal(
                policy_names.WHOLE_DEVICES,
                f"it asks for {devices} whole devices ({names.GPU} and its like), its {self.ledger.names.gpumem} is on "
                f"{self._spread}; lower them",
            )

    def _not_a_seat(self) -> Iterator[Refusal]:
        if not self.is_a_seat:
            sizes = " or ".join(self._sizes.texts)
            spread = f" on {self._spread} devices" if self._spread > 1 else ""
            yield Refusal(
                policy_names.SEAT_SIZES,
                f"a pod asks for {self._taken} MiB{spread}, a seat of {self.namespace} is {sizes}, and admission lets "
                "in exactly a seat's size; write it, or change gpumem_mib of the resident",
                of_budget=True,
            )

    def _seat_label(self) -> Iterator[Refusal]:
        label, spread = self._label, f" on {self._spread} devices" if self._spread > 1 else ""
        if label is not None and (self._named is None or self.is_unlike_its_label):
            yield Refusal(
                policy_names.SEAT_LABELS,
                f"its label {self.ledger.names.seat_label} is {label}, and no seat of {self.namespace} with this name "
                f"has {self._taken} MiB{spread}; copy labels and resources of the resident from the output residents, "
                "or remove the label",
                of_budget=self._named is not None and self.namespace not in self.ledger.queue_tenants,
            )

    @property
    def _label(self) -> str | None:
        labels, key = map_at(self.template, "metadata", "labels"), self.ledger.names.seat_label
        return text_at(labels, key) if key in labels else None

    @property
    def _named(self) -> Seat | None:
        return self.ledger.seat_named(self.namespace, self._label or "")

    @property
    def is_unlike_its_label(self) -> bool:
        """Returns True if the pod's label names a seat of its tenant, and the pod has not the size of this seat."""
        return self._named is not None and not self._has_a_size(SeatSizes.of((self._named,)))

    @cached_property
    def _taken(self) -> int:
        return int(largest_at_once(self._pod_spec, lambda c: Fraction(amount(c, self.ledger.names.gpumem))))

    @property
    def is_a_seat(self) -> bool:
        """Returns True if the pod's memory on each device equals a seat of its tenant."""
        return self._has_a_size(self._sizes)

    def _has_a_size(self, sizes: SeatSizes) -> bool:
        share, rest = divmod(self._taken, self._spread)
        return not rest and sizes.have(share, self._spread)

    @property
    def _sizes(self) -> SeatSizes:
        return SeatSizes.of(self.ledger.seats_of(self.namespace))

    def _queue(self) -> Iterator[Refusal]:
        """Yields a violation if a queue tenant's pod reaches a GPU without a seat and outside its queue."""
        if self._said.issuperset(self._routes) and not self._counts:
            return
        if (
            self.namespace in self.ledger.queue_tenants
            and not self.queued
            and not (self._has_budget and self.is_a_seat)
        ):
            yield Refusal(
                policy_names.QUEUED_PODS,
                f"GPUs of {self.namespace} are handed out by its queue; make it a "
                f"{kinds_of(self.ledger.frameworks)} with the label {names.KUEUE_QUEUE_LABEL}",
            )

    def _without_budget(self) -> Iterator[Refusal]:
        uncounted = [
            r
            for c in self._containers
            for r in reach.resources_asked_for(c, reach.of_device_plugin)
            if r not in reach.COUNTED_RESOURCES
        ]
        if uncounted and not self._needs_budget and self.namespace not in self.ledger.queue_tenants:
            counted = " and ".join(reach.COUNTED_RESOURCES)
            yield Refusal(
                policy_names.COUNTED_GPUS,
                f"it asks for {uncounted[0]}, the quota of {self.namespace} counts {counted}; ask for one of these",
            )
        seconds = whole(value_or(self._pod_spec, "terminationGracePeriodSeconds", 30))
        if seconds > reach.MOST_GRACE_SECONDS and self._routes and not self._needs_budget and not self.is_a_seat:
            yield Refusal(
                policy_names.GRACE,
                f"terminationGracePeriodSeconds is {seconds}, a pod with a GPU and no seat ends within "
                f"{reach.MOST_GRACE_SECONDS}; lower it",
            )

    def _owns_its_node(self) -> Iterator[Refusal]:
        """Yields a violation for each field that gives a container access to every device of its node.

        The Pod Security level baseline forbids these fields.
        """
        wrong = list(node_access_fields(self._pod_spec))
        if wrong and self._is_held and self._tenant is not None:
            yield Refusal(
                policy_names.POD_SECURITY,
                f"{wrong[0]} and so reaches every device past its budget; remove it: tenants.{self.namespace} is held "
                f"to Pod Security {self._tenant.pod_security}",
            )

    def _class(self) -> Iterator[Refusal]:
        terms, called = self.ledger.admission, text_at(self._pod_spec, "priorityClassName")
        if terms is None or not called:
            return
        if called.startswith(names.SYSTEM_PRIORITIES):
            if self.namespace not in terms.own:
                yield Refusal(
                    policy_names.PRIORITY_SYSTEM,
                    f"priorityClassName {called} is for what the cluster cannot do without; remove it",
                )
            return
        if called in terms.exempt_priorities:
            message = f"priorityClassName {called} is only for exempt namespaces; remove it"
            yield Refusal(policy_names.PRIORITY_USE, message)
            return
        may = terms.priorities.get(called, ())
        is_gpu_class = called == terms.gpu_priority
        if (is_gpu_class or may) and self.namespace not in may and not (is_gpu_class and self._asks_for_device):
            who = " and ".join([*(["pods that ask for a device"] if is_gpu_class else []), *may])
            yield Refusal(policy_names.PRIORITY_USE, f"priorityClassName {called} is only for {who}; remove it")


def amount(container: Manifest, resource: str) -> int:
    """Returns a container's limit on an extended resource, in whole units.

    The request of the container must equal its limit.
    """
    resources = map_at(container, "resources")
    return math.ceil(
        parse(value_or(map_at(resources, "limits"), resource, value_or(map_at(resources, "requests"), resource, 0)))
    )


def _whole_devices_of(container: Manifest) -> Fraction:
    return Fraction(sum(amount(container, r) for r in reach.resources_asked_for(container, reach.of_device_plugin)))


def node_access_fields(pod_spec: Manifest) -> Iterator[str]:
    """Yields a description of each field that gives a pod access to its node. Raises ShapeError."""
    yield from (f"{shared} is on" for shared in ("hostNetwork", "hostPID", "hostIPC") if pod_spec.get(shared))
    for volume in maps_at(pod_spec, "volumes"):
        if volume.get("hostPath") is not None:
            yield f"volume {volume.get('name')} mounts the host's {map_at(volume, 'hostPath').get('path')}"
    for container in containers_of(pod_spec):
        security = map_at(container, "securityContext")
        if security.get("privileged"):
            yield f"container {container.get('name')} is privileged"
        added = texts_at(map_at(security, "capabilities"), "add")
        yield from (f"container {container.get('name')} adds {c}" for c in added if c not in _CAPABILITIES)
