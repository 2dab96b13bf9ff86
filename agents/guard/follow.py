"""The pods that the guard protects on its node, and what their processes' oom_score_adj must not exceed."""

import http.client
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from agents import roster
from agents.api import Api, ApiError, Object
from agents.clock import Clock
from agents.errors import AgentError
from agents.events import Reference
from agents.log import Log
from agents.watch import Watch
from tenancy.memory import guarded_oom_score_adj
from tenancy.quantity import QuantityError, parse
from tenancy.workload import Manifest, ShapeError, at, containers_of, restarts

WATCH_SECONDS = 300.0
# Before the pods are listed again after an error.
PAUSE_SECONDS = 2.0
_PODS = "/api/v1/pods"
_MEMORY = "memory"
_MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Protected:
    """A pod whose processes' oom_score_adj is to be at most `adj`. `group_uid`: see agents/roster.py."""

    namespace: str
    name: str
    uid: str
    group_uid: str
    adj: int

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`members` are the namespaces and PriorityClasses of who is protected, as <namespace>/<class>. `total_mib` is the
    least memory that the kernel may measure by, `victim_adj` the least oom_score_adj of who is to be killed first.
    `swap_mib`: a limit does not count what is swapped out, and the kernel's ranking does."""

    members: frozenset[str]
    total_mib: int
    victim_adj: int
    swap_mib: int = 0

    def protect(self, pod: Object) -> Protected | None:
        """The pod as it is protected; None where it is not. Raises AgentError for a limit that cannot be read."""
        metadata, spec = pod["metadata"], pod["spec"]
        if f"{metadata['namespace']}/{spec.get('priorityClassName')}" not in self.members:
            return None
        try:
            limit_mib = limit(spec)
        except (QuantityError, ShapeError) as error:
            raise AgentError(f"pod {metadata['namespace']}/{metadata['name']}: its memory limit: {error}") from None
        most_mib = self.total_mib if limit_mib is None else min(limit_mib, self.total_mib)
        return Protected(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            group_uid=roster.group_uid(metadata),
            adj=guarded_oom_score_adj(most_mib + self.swap_mib, self.total_mib, self.victim_adj),
        )


def limit(pod_spec: Manifest) -> int | None:
    """The most MiB that the containers of a pod may hold at once; None where nothing limits one of them.

    Source: PodLimits in k8s.io/component-helpers/resource/helpers.go. Raises QuantityError, ShapeError.
    """
    level = _stated(pod_spec)
    if level is not None:
        return _mib(parse(level))
    if any(_stated(container) is None for container in containers_of(pod_spec)):
        return None
    running = sum((_limit(c) for c in containers_of(pod_spec, "containers")), Fraction(0))
    sidecars = peak = Fraction(0)
    for container in containers_of(pod_spec, "initContainers"):
        peak = max(peak, sidecars + _limit(container))
        if restarts(container):
            sidecars += _limit(container)
    return _mib(max(running + sidecars, peak))


def _stated(container: Manifest) -> object:
    return at(container, "resources", "limits").get(_MEMORY)


def _limit(container: Manifest) -> Fraction:
    return parse(_stated(container))


def _mib(size: Fraction) -> int:
    return math.ceil(size / _MIB)


@dataclass(kw_only=True)
class Follower:
    """Follows the node's pods; one thread writes `last`, by the UID in the name of the control group, all read. None:
    the API has not told yet."""

    api: Api
    node: str
    rule: Rule
    clock: Clock
    last: Mapping[str, Protected] | None = None
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self._at = self.clock.monotonic()

    @property
    def age_seconds(self) -> float:
        """Seconds since the API last told something, or since the start."""
        return self.clock.monotonic() - self._at

    def keep_following(self, log: Log) -> None:
        """For ever. While the API is away, who was protected stays so; tells when the problem changes."""
        told: str | None = None
        while True:
            try:
                self.follow(seconds=WATCH_SECONDS)
                problem = None
            except AgentError as error:
                problem = str(error)
                self.clock.sleep(PAUSE_SECONDS)
            if problem != told:
                log.error(f"who is protected stays as it was: {problem}") if problem else log.info("the API answers")
            told = problem

    def follow(self, *, seconds: float) -> None:
        """Lists the pods, then watches them for so long. Raises AgentError."""
        bound = {"fieldSelector": roster.on_node(self.node)}
        found: dict[str, Protected] = {}
        version = ""
        for page in self.api.pages(_PODS, **bound):
            version = page["metadata"]["resourceVersion"]
            for item in page.get("items") or ():
                self._tell(found, "ADDED", item)
        self._know(found)
        with Watch(self.api, _PODS, clock=self.clock, resource_version=version, seconds=seconds, **bound) as watch:
            try:
                for event in watch:
                    self._tell(found, event["type"], event["object"])
                    self._know(found)
            except ApiError as error:
                if error.status != http.client.GONE:
                    raise

    def _know(self, found: Mapping[str, Protected]) -> None:
        self.last = dict(found)
        self._at = self.clock.monotonic()

    def _tell(self, found: dict[str, Protected], kind: str, pod: Object) -> None:
        if kind == "BOOKMARK":
            return
        group = roster.group_uid(pod["metadata"])
        protected = None if kind == "DELETED" else self.rule.protect(pod)
        if protected is None:
            found.pop(group, None)
        else:
            found[group] = protected
