"""Shows a day of five residents in a few minutes, on a temporary cluster with a simulated GPU.

The demo does not change your kubeconfig or your stacks. The demo puts its cluster, kubeconfig, Pulumi state and kubectl
plugin into a temporary folder, and deletes the folder at the end.
"""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import yaml

from agents.kube.kubectl import Kubectl
from agents.runtime.errors import AgentError
from gpumem import cli
from gpumem.paper import Paper
from toolchain import plugin
from toolchain.cluster import card, cluster, control_plane, fake_nvml, node, paths, prod
from toolchain.cluster.api import ClusterApi, wait_until
from toolchain.cluster.background import call_repeatedly
from toolchain.cluster.card import Card
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.errors import ClusterError
from toolchain.cluster.extent import Extent
from toolchain.demo.stage import Stage
from toolchain.demo.story import Step, story

_NODE = f"/api/v1/nodes/{control_plane.NODE}"
_SIMULATED = "/api/v1/nodes/k8s-node1"
_STACK_FILE = "Pulumi.prod.yaml"
_LOADING = (("watchdog", "minimum_age_seconds", 10), ("gate", "starting_seconds", 20))
_WIDTH = 100
_READY_SECONDS = 120
_READING_SECONDS = 12  # The exporter reads the device every 5 s, and less often on a busy machine.
_END_SECONDS = 15
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Returns the exit code of the demo: 0, or 1 after an error, or 130 after an interruption. If an error ends the
    demo, prints the error on stderr."""
    if reason := why_not():
        print(f"make demo: {reason}", file=sys.stderr)
        return 1
    for number in _ENDS:
        signal.signal(number, _interrupted)
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-tenancy-demo-", ignore_cleanup_errors=True) as folder:
            _show_the_day(Path(folder))
    except KeyboardInterrupt:
        print("interrupted: the cluster is ended and its folder removed", file=sys.stderr)
        return 128 + signal.SIGINT
    except (ClusterError, AgentError) as error:
        print(f"make demo: {error}", file=sys.stderr)
        return 1
    print("\nThe cluster is ended and its folder removed.")
    return 0


def why_not() -> str | None:
    """Returns the reason why the demo cannot run on this machine, or None if the demo can."""
    if reason := node.why_not():
        return reason
    if lacking := paths.missing(paths.CONTROL_PLANE):
        return f"not installed: {', '.join(lacking)}; run make cluster-toolchain"
    if not fake_nvml.can_build():
        return "the simulated GPU needs a C compiler: install gcc and libc6-dev"
    return None


def _interrupted(*_: Any) -> None:
    """Ends the demo. Ignores a second Ctrl-C, so that the cleanup completes."""
    for number in _ENDS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _show_the_day(folder: Path) -> None:
    """Starts the cluster, runs all steps of the demo, and stops the cluster. Raises ClusterError."""
    kubeconfig = folder / "cluster" / "admin.kubeconfig"
    with redirect_stdout(None):
        plugin.main(folder / "bin")
    print(f"""A day of five residents of one simulated Tesla T4, in fast steps. In another terminal, meanwhile:
  export KUBECONFIG={kubeconfig} PATH={folder / "bin"}:{paths.TOOLCHAIN / "bin"}:$PATH
""")
    _say("A cluster starts: a control plane, and a real node with containerd and a kubelet.")
    with cluster.running(folder / "cluster", extent=Extent.REAL_NODE) as held:
        script = _give_gpu(held)
        _say("Prod is rolled out on it, with shorter times for loading: budgets, queues, admission, scheduler, agents.")
        _roll_out(folder, held)
        _say("The node's exporter publishes its device.")
        _open_node(held.api)
        stage = Stage(held.api, Card(script=script, wants={**prod.STEADY_MIB, "tts": prod.TTS_MIB}))
        kubectl = Kubectl([f"--kubeconfig={kubeconfig}"], paths.program("kubectl"))
        with kubectl, call_repeatedly(stage.card.turn, card.TURN_SECONDS):
            steps = story()
            for number, step in enumerate(steps, 1):
                print(f"\n{number} of {len(steps)}: {step.cause}", flush=True)
                _show(step, stage, kubectl)
        _say("The cluster ends.")


def _show(step: Step, stage: Stage, kubectl: Kubectl) -> None:
    _say(step.why)
    began = time.monotonic()
    step.act(stage)
    _say(f"after {time.monotonic() - began:.0f} s: {step.effect}")
    for told in step.told:
        _say(stage.said(told))
    _await_reading(stage, kubectl)
    for command in step.shows:
        print(f"\n$ kubectl gpumem {command}\n{_asked(command, kubectl)}", end="", flush=True)


def _say(what: str) -> None:
    print(textwrap.fill(what, _WIDTH, initial_indent="  ", subsequent_indent="    "), flush=True)


def _await_reading(stage: Stage, kubectl: Kubectl) -> None:
    """Waits until the plugin reports the current free memory. The plugin can report old figures, because the exporter
    reads the device only every 5 s."""
    ends = time.monotonic() + _READING_SECONDS
    while time.monotonic() < ends and f", {stage.card.free_mib} free" not in _asked("who --pool t4", kubectl):
        time.sleep(1)


def _asked(command: str, kubectl: Kubectl) -> str:
    try:
        return cli.text_of(command.split(), kubectl, Paper(_WIDTH))
    # After an error of the plugin, the demo shows the error in place of the report, and continues.
    except AgentError as error:
        return f"gpumem: {error}\n"


def _give_gpu(held: HeldCluster) -> Path:
    """Removes the simulated node of pool t4, and puts the real node into this pool.

    Returns the path of the fake NVML's input file.
    """
    libraries = node.gpu_libraries(held.folder)
    fake_nvml.build(libraries)
    script = libraries / "card"
    fake_nvml.write(script, card.nvml_figures(card.free_mib({})))
    held.api.request("DELETE", _SIMULATED)
    held.api.patch(_NODE, {"metadata": {"labels": card.LABELS}})
    return script


def _open_node(api: ClusterApi) -> None:
    """Removes the taint of the real node and waits until the node advertises gpumem. Raises ClusterError."""
    domain = prod.cluster_settings()["resource_domain"]
    api.patch(_NODE, {"spec": {"taints": []}})
    published = f"/apis/resource.k8s.io/v1/resourceslices/gpumem.{domain}-{control_plane.NODE}"
    wait_until(lambda: api.get(published), _READY_SECONDS, "the exporter publishes the device")
    key = f"{domain}/gpumem"
    wait_until(
        lambda: key in (api.get(_NODE) or {})["status"]["capacity"], _READY_SECONDS, "reconcile advertises its memory"
    )


def shorten_waits(config: dict[str, Any]) -> None:
    """Shortens two settings of prod that give a new pod time to load its model.

    With a shorter minimum age, the watchdog may evict the pod earlier. With a shorter starting time, the gate may give
    the pod's unused budget to on-demand workloads earlier.
    """
    for agent, key, seconds in _LOADING:
        config[f"gpu-tenancy:{agent}"][key] = seconds


def _roll_out(folder: Path, held: HeldCluster) -> None:
    """Rolls prod out with the changed settings. If Pulumi fails, raises ClusterError with Pulumi's output."""
    project, state = folder / "project", folder / "state"
    for made in (project, state):
        made.mkdir()
    for entry in paths.CHECKOUT.iterdir():
        if entry.name != _STACK_FILE:
            (project / entry.name).symlink_to(entry)
    document = yaml.safe_load((paths.CHECKOUT / _STACK_FILE).read_text())
    shorten_waits(document["config"])
    (project / _STACK_FILE).write_text(yaml.safe_dump(document))
    environment = {
        **os.environ,
        "PATH": f"{paths.TOOLCHAIN / 'bin'}:{os.environ['PATH']}",
        "KUBECONFIG": str(held.kubeconfig),
        "PULUMI_HOME": str(paths.TOOLCHAIN / "pulumi-home"),
        "PULUMI_BACKEND_URL": f"file://{state}",
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        # Pulumi does not save the state after each step, because the demo deletes the state together with the cluster.
        "PULUMI_SKIP_CHECKPOINTS": "true",
    }
    for arguments in (("stack", "init"), ("up", "--yes", "--skip-preview")):
        _run([paths.program("pulumi"), *arguments, "--stack=prod", "--non-interactive"], project, environment)


def _run(command: list[str], project: Path, environment: dict[str, str]) -> None:
    """Runs Pulumi in a new session, then kills all processes of the session.

    If the demo killed only the CLI, Pulumi's plugins would continue to run.
    """
    log = project.parent / "pulumi.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        code = child.wait()
    finally:
        _end_session(child)
    if code:
        raise ClusterError(f"prod is not rolled out:\n{log.read_text(errors='replace').rstrip()}")


def _end_session(leader: "subprocess.Popen[bytes]") -> None:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            session = int(stat.read_text().rpartition(") ")[2].split()[3])
            if session == leader.pid:
                os.kill(int(stat.parent.name), signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        leader.wait(_END_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
