"""What is served of pods: each by its own UID, whatever another claims."""

from datetime import UTC, datetime

from agents.exporter.attribution import DeviceUse
from agents.exporter.metrics import samples
from agents.exporter.pod_names import Registry
from agents.node.cgroup import Container
from agents.telemetry.device import Device
from tenancy.names import METRIC_POD_OVER, METRIC_POD_USED
from tenancy.units import MIB
from tests.support.mirrors import mirror
from tests.unit.agents.node.test_pods import CHAT, read

GPU = Device(gpu=0, uuid="GPU-0", total_bytes=16000 * MIB, used_bytes=9000 * MIB, free_bytes=7000 * MIB)
THIEF = {**CHAT, "metadata": {"namespace": "thief", "name": "t", "uid": "uid-thief", **mirror("uid-chat", "k8s-node1")}}


def test_memory_is_shown_with_the_pod_whose_uid_its_control_group_bears_and_with_no_other() -> None:
    use = DeviceUse(device=GPU, used_bytes={Container("uid-chat", "aaa"): 9000 * MIB})
    now = datetime(2026, 11, 22, tzinfo=UTC)
    served = [*samples([use], [], Registry(read(CHAT, THIEF)), now, age_seconds=0, api_age_seconds=0)]
    over = {each.labels["pod_uid"]: each.value // MIB for each in served if each.name == METRIC_POD_OVER}
    assert over == {"uid-chat": 4000, "uid-thief": 0}
    assert {each.labels["pod_uid"] for each in served if each.name == METRIC_POD_USED} == {"uid-chat"}
