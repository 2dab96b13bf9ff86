"""Tests caps with examples/enforced.yaml on a real node with NVIDIA's container toolkit 1.20.1 (`make caps`).

Only the library of NVIDIA's driver is a fake. Each test starts in the state that the last test has left. For each
fault, the tests print the exporter's reason and the seconds until its report.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from tenancy import names
from tenancy.units import MIB
from tests.support.e2e.capping import (
    GPUS,
    MISSING,
    SERVED_SECONDS,
    SLICE,
    UNABLE,
    UUIDS,
    Caps,
    capped,
    model,
    pod,
    processes,
)
from tests.support.e2e.rollout import condition, logged, pods
from tests.support.waiting import eventually
from toolchain.cluster import fake_nvml, nvidia
from toolchain.cluster.api import wait_until
from toolchain.cluster.paths import program

pytestmark = pytest.mark.day


@pytest.fixture(scope="module")
def caps(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caps]:
    with capped(tmp_path_factory) as found:
        yield found


def test_a_budget_is_at_nvml_before_its_process_runs_and_is_read_back(caps: Caps) -> None:
    stack, began = caps.stack, time.monotonic()
    declared = yaml.safe_load(stack.workspace.stack_file.read_text())["config"]["gpu-tenancy:residents"]["llm"]
    caps.create("chat", pod("llm", model("model", str(declared["gpumem_mib"]))))
    identity = caps.started("chat", "llm")["model"]
    made = stack.get(pods("chat", "llm"))
    uuid, uid = made["metadata"]["annotations"][UUIDS], made["metadata"]["uid"]
    (container,) = made["spec"]["containers"]
    environment = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
    assert environment[names.MEMORY_LIMIT] == environment[names.MEMORY_REQUEST] == str(declared["gpumem_mib"])
    (limit,) = (each for each in caps.limits() if identity in each[1])
    assert (limit[0], limit[2]) == (uuid, declared["gpumem_mib"])
    assert re.search(rf"pod{uid}/(cri-containerd-)?{identity}", limit[1].replace("_", "-"))
    said = lambda: logged(stack.cluster.api.request("GET", f"{pods('chat', 'llm')}/log"))  # noqa: E731
    log = str(eventually(said, "its process says what it finds"))
    assert limit[1] in log, "the process saw it as its first act"
    caps.served("a pod starts", "", lambda: caps.reasons() == {("llm", "model", uuid): ""}, since=began)
    bundle = f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{identity}/config.json"
    spec = json.loads(Path(f"/proc/{stack.cluster.pid_of('node')}/root", bundle).read_text())
    (hook,) = spec["hooks"]["createRuntime"]
    series = [s for s in caps.samples() if s.name in (names.METRIC_LIMIT, names.METRIC_CAPPED)]
    runtime = stack.cluster.folder.log("nvidia-container-runtime").read_text().splitlines()
    print(
        f"\nthe stack file    residents.llm: {declared}",
        f"the API server    pod chat/llm, container model, limits {container['resources']['limits']}",
        f"                  env {json.dumps(environment)}",
        f"                  annotation {UUIDS}: {uuid}",
        *(f"NVIDIA's runtime  {line}" for line in runtime if identity in line),
        f"runc's bundle     createRuntime: {' '.join(hook['args'])}",
        f"NVML, by the hook set {limit[0]} {limit[1]} {limit[2] * MIB} bytes",
        f"the process       its first line: {log.splitlines()[-1] or log.splitlines()[0]}",
        *(f"the exporter      {s.name}{json.dumps(s.labels)} {s.value:.0f}" for s in series),
        sep="\n",
        flush=True,
    )


def test_each_container_has_its_own_cap_on_each_device(caps: Caps) -> None:
    began = time.monotonic()
    caps.create("photos", pod("two", model("search", "6192", "2"), model("faces", "2000"), model("proxy")))
    caps.started("photos", "two")
    held = {("two", each, uuid): "" for each in ("search", "faces") for uuid in GPUS}
    caps.served(
        "several containers on several devices",
        "",
        lambda: {key: why for key, why in caps.reasons().items() if key[0] == "two"} == held,
        since=began,
    )
    mib = {(s.labels["container"], s.value / MIB) for s in caps.samples() if s.name == names.METRIC_LIMIT}
    assert {("search", 3096.0), ("faces", 1000.0)} <= mib


def alone(caps: Caps) -> tuple[str, str, str]:
    (key,) = (key for key in caps.reasons() if key[0] == "llm")
    return key


def restarted(caps: Caps, namespace: str, name: str, old: str) -> str:
    other = lambda: next((x for x in caps.started(namespace, name).values() if x != old), None)  # noqa: E731
    return str(eventually(other, "the container runs again"))


def test_a_restarted_container_counts_as_capped_only_with_its_own_limit(caps: Caps) -> None:
    old, (process, _) = caps.started("chat", "llm")["model"], next(processes("model"))
    began = time.monotonic()
    os.kill(process, signal.SIGKILL)
    new = restarted(caps, "chat", "llm", old)
    assert [limit for limit in caps.limits() if new in limit[1]], "set before it ran"
    key = alone(caps)
    caps.served("a container restarts", "", lambda: caps.reasons().get(key) == "", since=began)


@pytest.mark.parametrize("part", ["kubelet", "containerd"])
def test_caps_stay_in_force_while_kubelet_and_containerd_restart(caps: Caps, part: str) -> None:
    before, running = caps.reasons(), caps.started("chat", "llm")
    old = caps.stack.cluster.pid_on_node(program(part))
    began = time.monotonic()
    os.kill(old, signal.SIGKILL)

    def again() -> bool:
        with suppress(ProcessLookupError):
            return caps.stack.cluster.pid_on_node(program(part)) != old
        return False

    eventually(again, f"{part} runs again")
    seen = [caps.reasons() for _ in range(5)]
    assert all(each == before for each in seen), seen
    caps.served(f"{part} restarts", "", lambda: caps.reasons() == before, since=began)
    assert caps.started("chat", "llm") == running
    caps.create("photos", pod("after", model("after", "4096")))
    identity = caps.started("photos", "after")["after"]
    assert [limit[2] for limit in caps.limits() if identity in limit[1]] == [4096]
    caps.delete("photos", "after")


def restart_exporter(caps: Caps) -> None:
    words = (f"{names.AGENTS_DIRECTORY}/{names.AGENTS_KEY}", "exporter")
    old = caps.stack.cluster.pid_on_node(*words)
    os.kill(old, signal.SIGKILL)

    def again() -> bool:
        with suppress(ProcessLookupError):
            return caps.stack.cluster.pid_on_node(*words) != old
        return False

    eventually(again, "the exporter runs again")


def test_a_restarted_exporter_serves_the_same_caps(caps: Caps) -> None:
    before, began = caps.reasons(), time.monotonic()
    restart_exporter(caps)
    caps.served("the exporter restarts", "", lambda: caps.reasons() == before, since=began)


def test_a_container_without_a_budget_that_uses_a_device_is_named(caps: Caps) -> None:
    _, process = next(processes("proxy"))
    began = time.monotonic()
    caps.show_on("GPU-0", f"compute {process} {MIB * 900}")
    key = ("two", "proxy", "GPU-0")
    shown = lambda: caps.reasons().get(key) == "no-budget"  # noqa: E731
    caps.served("a container without gpumem uses the device", "no-budget", shown, MISSING, since=began)
    assert {labels["container"] for labels in caps.firing(MISSING, "no-budget")} == {"proxy"}
    caps.show()
    eventually(lambda: key not in caps.reasons(), "it is no longer named")


def test_a_limit_that_is_lost_on_one_of_several_devices_is_named_on_that_one(caps: Caps) -> None:
    limits, identity = caps.libraries / "limits", caps.started("photos", "two")["search"]
    whole, began = limits.read_text(), time.monotonic()
    lost = [line for line in whole.splitlines(keepends=True) if line.startswith("set GPU-1 ") and identity in line]
    assert lost
    fake_nvml.write(limits, "".join(line for line in whole.splitlines(keepends=True) if line not in lost))
    shown = lambda: caps.reasons().get(("two", "search", "GPU-1")) == "no-limit"  # noqa: E731
    caps.served("one of several devices without", "no-limit", shown, MISSING, since=began)
    assert caps.reasons()["two", "search", "GPU-0"] == ""
    assert {labels["container"] for labels in caps.firing(MISSING, "no-limit")} == {"search"}
    fake_nvml.write(limits, whole)
    caps.over("no-limit")


def test_a_container_of_which_the_api_knows_nothing_is_named(caps: Caps) -> None:
    directory = f"{caps.limits()[-1][1].partition('/kubepods/')[0]}/kubepods/pod{uuid4()}/{'f' * 64}"
    with (caps.libraries / "limits").open("a") as limits:
        limits.write(f"set GPU-1 {directory} {4096 * MIB} {4096 * MIB}\n")
    enter = ["nsenter", f"--target={caps.stack.cluster.pid_on_node(program('kubelet'))}", "--pid", "--mount"]
    script = f"mkdir -p {directory}; echo $$ > {directory}/cgroup.procs; echo $$; exec sleep 1000"
    with subprocess.Popen([*enter, "sh", "-c", script], stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout
        process, began = stranger.stdout.readline().strip(), time.monotonic()
        try:
            caps.show_on("GPU-1", f"compute {process} {MIB * 900}")
            shown = lambda: caps.reasons().get(("", "", "GPU-1")) == "unknown-container"  # noqa: E731
            caps.served("unknown container id", "unknown-container", shown, MISSING, since=began)
        finally:
            subprocess.run([*enter, "kill", process], check=True)
    caps.show()
    caps.over("unknown-container")


def test_a_new_container_before_the_api_has_it_is_named(caps: Caps) -> None:
    caps.create("photos", pod("race", model("race", "4096")))
    old = caps.started("photos", "race")["race"]
    uuid = caps.stack.get(pods("photos", "race"))["metadata"]["annotations"][UUIDS]
    capped = lambda: caps.reasons().get(("race", "race", uuid)) == ""  # noqa: E731
    wait_until(capped, SERVED_SECONDS * 3, "it is capped", caps.reasons)
    ((process, _),) = processes("race")
    unshare = caps.stack.cluster.pid_of("node")
    relay = int(Path(f"/proc/{unshare}/task/{unshare}/children").read_text())
    os.kill(relay, signal.SIGSTOP)
    try:
        os.kill(process, signal.SIGKILL)
        other = lambda: next((each for each in processes("race") if each[0] != process), None)  # noqa: E731
        _, on_node = eventually(other, "the container runs again")
        began = time.monotonic()
        caps.show_on(uuid, f"compute {on_node} {MIB * 900}")
        shown = lambda: "unknown-container" in caps.reasons().values()  # noqa: E731
        caps.served("restart race", "unknown-container", shown, MISSING, since=began)
        assert caps.started("photos", "race")["race"] == old
        shown_now = {key: why for key, why in caps.reasons().items() if key[0] == "race"}
        assert shown_now == {("race", "race", uuid): "no-cgroup", ("race", "", uuid): "unknown-container"}
    finally:
        os.kill(relay, signal.SIGCONT)
    restarted(caps, "photos", "race", old)
    caps.show()
    caps.over("unknown-container")
    wait_until(capped, SERVED_SECONDS * 3, "it is capped again", caps.reasons)
    caps.delete("photos", "race")


def test_a_container_whose_group_is_gone_is_named_while_the_kubelet_says_that_it_runs(caps: Caps) -> None:
    kubelet = caps.stack.cluster.pid_on_node(program("kubelet"))
    os.kill(kubelet, signal.SIGSTOP)
    try:
        (process, _), began = next(processes("faces")), time.monotonic()
        os.kill(process, signal.SIGKILL)
        shown = lambda: "no-cgroup" in caps.reasons().values()  # noqa: E731
        caps.served("a container's group is gone", "no-cgroup", shown, MISSING, since=began)
        assert {labels["container"] for labels in caps.firing(MISSING, "no-cgroup")} == {"faces"}
    finally:
        os.kill(kubelet, signal.SIGCONT)


def refusal(caps: Caps, name: str) -> str:
    def said() -> str:
        for each in caps.state("photos", name).get("containerStatuses", []):
            return str(each["state"].get("waiting", {}).get("message", ""))
        return ""

    words = eventually(lambda: said() if "error running hook" in said() else "", f"{name} is refused", said)
    notes = lambda: [event["note"] for event in caps.stack.events("photos", "Failed")]  # noqa: E731
    eventually(lambda: any(words in note for note in notes()), "an Event says the same", notes)
    print(f"\nthe kubelet: {words}")
    return str(words)


REFUSALS: Mapping[str, tuple[Callable[[Caps], None], str]] = {
    "accounting is off": (lambda caps: caps.show(accounting=""), "Not Supported"),
    "the driver refuses the limit": (lambda caps: caps.show("refusing 2"), "Invalid Argument"),
}


@pytest.mark.parametrize(("fault", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_node_that_cannot_set_a_cap_refuses_the_pod_with_a_reason_and_starts_it_later(
    caps: Caps, fault: Callable[[Caps], None], words: str
) -> None:
    """The scheduler cannot detect these faults."""
    fault(caps)
    try:
        caps.create("photos", pod("refused", model("refused", "4096")))
        said = refusal(caps, "refused")
        assert re.search(rf'failed to set memory limits for gpu \\"GPU-[01]\\": {words}', said), said
    finally:
        caps.show()
    caps.started("photos", "refused")
    caps.delete("photos", "refused")
    caps.over("no-limit")


def test_a_container_that_restarts_under_a_toolkit_without_the_hook_is_named(caps: Caps) -> None:
    caps.delete("photos", "two")
    caps.create("photos", pod("photo-search", model("search", "4096")))
    old = caps.started("photos", "photo-search")["search"]
    held = lambda: {why for key, why in caps.reasons().items() if key[0] == "photo-search"}  # noqa: E731
    wait_until(lambda: held() == {""}, SERVED_SECONDS * 3, "it is capped", held)
    nvidia.write_cdi(caps.stack.cluster.folder, GPUS, hook=False)
    try:
        process, _ = next(processes("search"))
        os.kill(process, signal.SIGKILL)
        new, began = restarted(caps, "photos", "photo-search", old), time.monotonic()
        assert not [limit for limit in caps.limits() if new in limit[1]]
        shown = lambda: "no-limit" in held()  # noqa: E731
        caps.served("a toolkit without the hook", "no-limit", shown, MISSING, since=began)
        assert held() == {"no-limit"}
        (labels,) = caps.firing(MISSING, "no-limit")
        assert (labels["namespace"], labels["pod"], labels["container"]) == ("photos", "photo-search", "search")
        notes = lambda: [event["note"] for event in caps.stack.events("photos", names.EVENT_UNCAPPED)]  # noqa: E731
        eventually(
            lambda: any("container search" in note and "no-limit" in note for note in notes()),
            "the watchdog's Event names it",
            notes,
        )
    finally:
        nvidia.write_cdi(caps.stack.cluster.folder, GPUS)
    caps.delete("photos", "photo-search")


def test_a_node_that_mig_divides_is_named_and_takes_no_pod(caps: Caps) -> None:
    key, began = alone(caps), time.monotonic()
    caps.show("mig")
    shown = lambda: caps.reasons().get(key) == "mig"  # noqa: E731
    caps.served("MIG is turned on", "mig", shown, MISSING, UNABLE, since=began)
    takes_no_pod(caps, "mig")
    caps.show()
    eventually(lambda: slice_says(caps) != {"mig"}, "the node can again")


def slice_says(caps: Caps) -> set[str | None]:
    devices = caps.stack.get(SLICE)["spec"]["devices"]
    return {each["attributes"].get("memoryCap", {}).get("string") for each in devices}


def takes_no_pod(caps: Caps, why: str) -> None:
    eventually(lambda: slice_says(caps) == {why}, "the node's slice says so", lambda: slice_says(caps))
    caps.create("photos", pod("waits", model("waits", "4096")))
    said = lambda: condition(caps.stack.get(pods("photos", "waits")), "PodScheduled").get("message", "")  # noqa: E731
    eventually(lambda: why in said(), "the scheduler says why it does not place it", said)
    print(f"\nthe scheduler: {said()}")
    caps.delete("photos", "waits")


def test_an_older_driver_refuses_the_pod_in_words_and_its_node_takes_no_more(caps: Caps) -> None:
    key = alone(caps)
    (caps.libraries / fake_nvml.LIBRARY).unlink()
    fake_nvml.build(caps.libraries, old_driver=True)
    caps.create("photos", pod("refused", model("refused", "4096")))
    assert "undefined symbol: nvmlDeviceSetMemoryLimits_v1" in refusal(caps, "refused")
    caps.delete("photos", "refused")
    began = time.monotonic()
    restart_exporter(caps)
    shown = lambda: caps.reasons().get(key) == "driver-too-old"  # noqa: E731
    caps.served("an older driver", "driver-too-old", shown, MISSING, UNABLE, since=began)
    takes_no_pod(caps, "driver-too-old")
