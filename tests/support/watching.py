"""Runs passes of a watchdog on one or two devices with pods."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from agents.kube.pods import Controller
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.reading import PodUse
from agents.watchdog.decide import decide
from agents.watchdog.pods import GpuPod
from agents.watchdog.snapshot import Snapshot
from agents.watchdog.types import Decision, DeviceVerdict, Limits, PassState, Recycled
from tenancy.devices.waiting import WaitingSeat
from tenancy.units import MIB
from tests.support.exporters import card
from tests.support.fake_cluster import T4

NOW = datetime(2026, 6, 2, 12, 0, tzinfo=UTC)
LIMITS = Limits(
    minimum_age_seconds=120,
    cool_down_seconds=600,
    grace_seconds=30,
    evictions_per_hour=6,
    least_free_mib=0,
    tenants=("immich", "llama-swap", "team-a"),
)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


ARENA = GpuPod(
    namespace="immich",
    name="arena",
    uid="uid-ml",
    node="n",
    declared_mib=3000,
    started=after(-5 * 3600),
    workload="immich/Deployment/immich-ml",
    priority=1_200_000,
    owner=Controller(kind="ReplicaSet", name="immich-ml-5c9d", uid="rs-1"),
)
LLAMA = replace(
    ARENA,
    namespace="llama-swap",
    name="llama",
    uid="uid-llama",
    declared_mib=5000,
    workload="llama-swap/StatefulSet/llama-swap",
    owner=Controller(kind="StatefulSet", name="llama-swap", uid="sts-1"),
)
EMULATOR = replace(ARENA, namespace="android-emulator", name="emulator", uid="uid-emulator", declared_mib=0)
ENDING = replace(ARENA, gone_by=after(130))
JOB = replace(
    ARENA,
    namespace="team-a",
    name="train-0",
    uid="uid-0",
    workload="team-a/Workload/job-train",
    owner=Controller(kind="Job", name="train", uid="job-1"),
    queued_as="job-train",
)
Use = tuple[GpuPod, int]


@dataclass
class Watch:
    limits: Limits = LIMITS
    recycled: tuple[Recycled, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    seats: tuple[WaitingSeat, ...] = ()
    on_record: frozenset[str] = frozenset()
    seconds: float = 100.0
    skew_seconds: float = 0.0
    state: PassState = field(default_factory=PassState)

    def sample(self, *uses: Use, pods: Iterable[GpuPod] | None = None, **reading: Any) -> Decision:
        self.seconds += 5
        found = NodeTelemetry(
            **{
                "pool": T4,
                "node": "n",
                "devices": (card(15360 - sum(mib for _, mib in uses)),),
                "uses": tuple(
                    PodUse(uid=pod.uid, namespace=pod.namespace, pod=pod.name, uuid="GPU-0", used_bytes=mib * MIB)
                    for pod, mib in uses
                ),
                "age_seconds": self.seconds / 1000,
                "read_at": self.seconds - 1,
                **reading,
            }
        )
        return self.judge(found, tuple(pod for pod, _ in uses) if pods is None else tuple(pods))

    def judge(self, found: NodeTelemetry, pods: tuple[GpuPod, ...], *, server_ahead_seconds: float = 0) -> Decision:
        now = after(self.seconds + self.skew_seconds)
        snapshot = Snapshot(
            at=self.seconds,
            now=now + timedelta(seconds=server_ahead_seconds),
            local_now=now,
            readings=(found,),
            pods=pods,
            recycled=self.recycled,
            refused=self.refused,
            seats=self.seats,
            limits=self.limits,
            on_record=self.on_record,
            state=self.state,
        )
        decision = decide(snapshot)
        self.state = decision.state
        return decision


def verdict(decision: Decision) -> DeviceVerdict:
    (found,) = decision.verdicts
    return found


def recycled(decision: Decision) -> list[str]:
    return [pod.name for found in decision.verdicts for target in found.recycle for pod in target.pods]


def second(watch: Watch, *uses: Use, **reading: Any) -> Decision:
    watch.sample(*uses, **reading)
    return watch.sample(*uses, **reading)


def entry(at: float, pod: GpuPod, *uids: str) -> Recycled:
    return Recycled(at=after(at), workload=pod.workload, pods=uids or (pod.uid,), node="n")


def two_cards(
    watch: Watch, *uses: tuple[GpuPod, int, int], shown: tuple[int, ...] = (0, 1), **reading: Any
) -> Decision:
    devices = tuple(card(15360 - sum(mib for _, mib, at in uses if at == gpu), gpu) for gpu in shown)
    found = tuple(
        PodUse(uid=pod.uid, namespace="", pod="", uuid=f"GPU-{gpu}", used_bytes=mib * MIB) for pod, mib, gpu in uses
    )
    pods = {pod.uid: pod for pod, _, _ in uses}.values()
    return second(watch, devices=devices, uses=found, pods=pods, **reading)
