"""Tests real lines of /proc/<pid>/cgroup from all cgroup drivers, container runtimes and cgroup versions."""

import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.node.cgroup import Container, ProcError, container_in, container_of

UID = "0aaf3b32-5b3c-4a2e-9b54-0b5bba3ea9d4"
SLICE = UID.replace("-", "_")
ID = "6f1c3e0b0d4b6a2f9e8d7c6b5a493827161504f3e2d1c0bfaeadbcdbeacfd012"
CONTAINER = Container(UID, ID)

LAYOUTS = {
    "v1, cgroupfs, containerd": f"12:memory:/kubepods/burstable/pod{UID}/{ID}",
    "v1, cgroupfs, guaranteed": f"11:cpu,cpuacct:/kubepods/pod{UID}/{ID}",
    "v1, cgroupfs, cri-o": f"9:pids:/kubepods/besteffort/pod{UID}/crio-{ID}",
    "v1, systemd, containerd": (
        f"10:memory:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice"
        f"/cri-containerd-{ID}.scope"
    ),
    "v1, systemd, cri-o": (
        f"1:name=systemd:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE}.slice/crio-{ID}.scope"
    ),
    "v2, cgroupfs, containerd": f"0::/kubepods/burstable/pod{UID}/{ID}",
    "v2, systemd, containerd": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice/cri-containerd-{ID}.scope"
    ),
    "v2, systemd, guaranteed": f"0::/kubepods.slice/kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope",
    "v2, systemd, cri-o, whose containers have a group below the scope": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice/crio-{ID}.scope/container"
    ),
    "v2, systemd, cri-dockerd": (
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE}.slice/docker-{ID}.scope"
    ),
    "v2, seen from a cgroup namespace of another pod": (
        f"0::/../../kubepods-burstable-pod{SLICE}.slice/cri-containerd-{ID}.scope"
    ),
    "v2, cgroupfs, seen from a cgroup namespace of another pod": f"0::/../../pod{UID}/{ID}",
    "v2, seen across the quality-of-service classes": (
        f"0::/../../../kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE}.slice/cri-containerd-{ID}.scope"
    ),
    "containerd without SystemdCgroup under a kubelet with the systemd driver": (
        f"0::/system.slice/containerd.service/kubepods-burstable-pod{SLICE}.slice:cri-containerd:{ID}"
    ),
    "kind: the kubelet's root is a slice": (
        "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"
        f"/kubelet-kubepods-besteffort-pod{SLICE}.slice/cri-containerd-{ID}.scope"
    ),
    "a kubelet with a cgroup root": f"4:memory:/gpu-tenancy-4711/kubepods/burstable/pod{UID}/{ID}",
    "an init system inside the container": (
        f"0::/kubepods.slice/kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope/init.scope"
    ),
    "a hybrid host: the pod is in v1's lines only": f"0::/\n9:memory:/kubepods/burstable/pod{UID}/{ID}\n1:cpu:/",
}
OUTSIDE = {
    "v2, the root": "0::/",
    "the kernel's own threads on v1": "12:memory:/\n11:cpu,cpuacct:/",
    "a service of the host": "0::/system.slice/nvidia-persistenced.service",
    "a user's session": "0::/user.slice/user-1000.slice/session-2.scope",
    "the kubelet": "0::/kubepods.slice",
    "docker beside Kubernetes": f"0::/system.slice/docker-{ID}.scope",
    "cri-o's monitor, which is in no container": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice/crio-conmon-{ID[:-1]}.scope"
    ),
    "the pod's own group": f"0::/kubepods/burstable/pod{UID}",
    "the reader's own group": "0::/",
    "nothing": "",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_container_is_found_in(layout: str) -> None:
    assert container_in(LAYOUTS[layout] + "\n") == CONTAINER


@pytest.mark.parametrize("layout", OUTSIDE)
def test_no_container_is_found_in(layout: str) -> None:
    assert container_in(OUTSIDE[layout] + "\n") is None


def test_a_container_cannot_pass_for_another_by_naming_its_own_groups() -> None:
    forged = f"{uuid.UUID(int=7)}"
    for layout, lines in LAYOUTS.items():
        if "\n" not in lines:
            assert container_in(f"{lines}/kubepods/pod{forged}/{'f' * 64}") == CONTAINER, layout


@given(
    st.uuids(),
    st.binary(min_size=32, max_size=32).map(bytes.hex),
    st.sampled_from(["kubepods/burstable", "a/b-c.slice", ".."]),
)
def test_any_pod_and_container_come_back_from_either_driver(pod: uuid.UUID, container: str, root: str) -> None:
    cgroupfs = f"3:cpuset:/{root}/pod{pod}/{container}"
    systemd = f"0::/{root}/kubepods-pod{str(pod).replace('-', '_')}.slice/crio-{container}.scope"
    assert container_in(cgroupfs) == container_in(systemd) == Container(str(pod), container)


def test_a_process_that_ended_is_in_no_container(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(LAYOUTS["v2, cgroupfs, containerd"])
    assert (container_of(7, tmp_path), container_of(8, tmp_path)) == (CONTAINER, None)


def test_a_control_group_that_may_not_be_read_is_an_error_and_not_a_process_of_nobody(tmp_path: Path) -> None:
    (tmp_path / "7" / "cgroup").mkdir(parents=True)
    with pytest.raises(ProcError, match="process 7: its control group cannot be read"):
        container_of(7, tmp_path)
