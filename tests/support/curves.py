"""A fake exporter. The test chooses the GPU memory of each pod."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agents.runtime import exposition
from agents.runtime.exposition import Metric, Sample
from tenancy.names import (
    METRIC_DEVICE_FREE,
    METRIC_DEVICE_TOTAL,
    METRIC_DEVICE_USED,
    METRIC_POD_DECLARED,
    METRIC_POD_USED,
    METRIC_POOL_FLOOR,
    METRIC_SAMPLE_AGE,
    METRIC_UNATTRIBUTED,
)
from tenancy.units import MIB

T4_MIB = 15360


@dataclass(frozen=True)
class Use:
    namespace: str
    pod: str
    uid: str
    mib: int
    declares: bool = True


def answer(uses: Sequence[Use], *, age_seconds: float, driver_mib: int = 0, uuid: str = "GPU-0") -> str:
    used_mib = driver_mib + sum(use.mib for use in uses)
    card = {"gpu": "0", "uuid": uuid}
    amounts = {
        METRIC_DEVICE_TOTAL: T4_MIB,
        METRIC_DEVICE_USED: used_mib,
        METRIC_DEVICE_FREE: T4_MIB - used_mib,
        METRIC_UNATTRIBUTED: driver_mib,
    }
    samples = [Sample(name=name, labels=card, value=mib * MIB) for name, mib in amounts.items()]
    samples += [
        Sample(
            name=METRIC_POD_USED,
            labels={"namespace": use.namespace, "pod": use.pod, "pod_uid": use.uid, "container": "main", **card},
            value=use.mib * MIB,
        )
        for use in uses
    ]
    if not all(use.declares for use in uses):
        samples.append(Sample(name=METRIC_POOL_FLOOR, labels={"pool": "t4"}, value=1536 * MIB))
        samples += [
            Sample(name=METRIC_POD_DECLARED, labels={"pod_uid": use.uid}, value=MIB) for use in uses if use.declares
        ]
    samples.append(Sample(name=METRIC_SAMPLE_AGE, value=age_seconds))
    return exposition.render(samples, {sample.name: Metric(text="Scripted.") for sample in samples})


@dataclass
class Script:
    uses: Callable[[], Sequence[Use]]
    driver_mib: int = 0
    status: int = 200
    scrapes: int = field(default=0, init=False)

    def metrics(self) -> tuple[int, str]:
        self.scrapes += 1
        age_seconds = 1 + self.scrapes % 97 / 1000
        return self.status, answer(self.uses(), age_seconds=age_seconds, driver_mib=self.driver_mib)

    def health(self) -> tuple[int, str]:
        return 200, "ok\n"
