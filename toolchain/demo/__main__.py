"""Shows a day of five residents in a few minutes, on a temporary cluster with a simulated GPU.

The demo does not change your kubeconfig or your stacks. The demo puts its cluster, kubeconfig, Pulumi state and kubectl
plugin into a temporary folder, and deletes the folder at the end.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

from agents.runtime.errors import AgentError
from gpumem import cli
from gpumem.kubectl import Kubectl
from gpumem.paper import Paper
from toolchain import plugin
from toolchain.cluster import card, cluster, control_plane, fake_nvml, node, paths, prod
from toolchain.cluster.api import ClusterApi, wait_until
from toolchain.cluster.background import call_repeatedly
from toolchain.cluster.card import Card
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.errors import ClusterError
from toolchain.cluster.extent import Extent
from toolchain.demo.screen import CLEAR, Page
from toolchain.demo.stage import Stage
from toolchain.demo.story import Step, story
from toolchain.workspace import Workspace, workspace

_NODE = f"/api/v1/nodes/{control_plane.NODE}"
_SIMULATED = "/api/v1/nodes/k8s-node1"
_PREFIX = "gpu-tenancy-demo-"
_LOADING = (("watchdog", "minimum_age_seconds", 10), ("gate", "starting_seconds", 20))
_FAST = " and ".join(f"{agent}.{key} {seconds}" for agent, key, seconds in _LOADING)
_READY_SECONDS = 120
_DRAW_SECONDS = 2.0  # The shortest time between two updates of the drawing.
_READ_SECONDS = 4.0  # The time for which the demo shows each report.
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
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder:
            _Demo(Path(folder), began).run()
    except KeyboardInterrupt:
        print("interrupted: the cluster is ended and its folder removed", file=sys.stderr)
        return 128 + signal.SIGINT
    except (ClusterError, AgentError) as error:
        print(f"make demo: {error}", file=sys.stderr)
        return 1
    print(f"\nThe cluster is ended and its folder removed. It took {time.monotonic() - began:.0f} s.")
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
    print("\nends what it started ...", file=sys.stderr, flush=True)
    raise KeyboardInterrupt


class _Demo:
    def __init__(self, folder: Path, began: float) -> None:
        self._folder = folder
        self._began = began
        self._terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if self._terminal else 100
        colour = self._terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._page, self._paper = Page(width, colour), Paper(width, colour)
        self._rows: list[tuple[Step, float]] = []
        self._drawn = 0.0

    def run(self) -> None:
        """Starts the cluster, runs all steps of the demo, and stops the cluster. Raises ClusterError."""
        kubeconfig = self._folder / "cluster" / "admin.kubeconfig"
        self._install_plugin()
        print(f"""A day of five residents of one simulated Tesla T4, in fast steps. In another terminal, meanwhile:
  export KUBECONFIG={kubeconfig} PATH={self._folder / "bin"}:{paths.TOOLCHAIN / "bin"}:$PATH
""")
        self._say("a cluster starts: a control plane, and a real node with containerd and a kubelet")
        with cluster.running(self._folder / "cluster", extent=Extent.REAL_NODE) as held:
            script = _give_gpu(held)
            self._say(f"prod is rolled out on it, with {_FAST}: budgets, queues, admission, scheduler, agents")
            _roll_out(self._folder, held)
            self._say("the node's exporter publishes its device")
            _open_node(held.api)
            stage = Stage(held.api, Card(script=script, wants={**prod.STEADY_MIB, "tts": prod.TTS_MIB}))
            with _kubectl(kubeconfig) as kubectl, call_repeatedly(stage.card.turn, card.TURN_SECONDS):
                self._play(stage, kubectl)
            print(f"\nThe day, and after how many seconds:\n{self._page.summary(self._rows)}")
            self._say("the cluster ends")

    def _say(self, what: str) -> None:
        print(self._page.line(time.monotonic() - self._began, what), flush=True)

    def _install_plugin(self) -> None:
        with redirect_stdout(None):
            plugin.main(self._folder / "bin")

    def _play(self, stage: Stage, kubectl: Kubectl) -> None:
        steps = story()
        for number, step in enumerate(steps, 1):
            above = self._page.beginning(number, len(steps), step)
            if not self._terminal:
                print(f"\n{above}", end="", flush=True)
            stage.meanwhile = self._redraws(above, kubectl)
            began = time.monotonic()
            stage.play(step.key)
            self._rows.append((step, time.monotonic() - began))
            self._show(step, above, stage, kubectl)

    def _redraws(self, above: str, kubectl: Kubectl) -> Callable[[], None]:
        def redraw() -> None:
            if self._terminal and time.monotonic() - self._drawn >= _DRAW_SECONDS:
                self._draw(above, [self._asked("who", kubectl)])

        return redraw

    def _show(self, step: Step, above: str, stage: Stage, kubectl: Kubectl) -> None:
        _, seconds = self._rows[-1]
        self._await_reading(stage, kubectl)
        outcome = self._page.outcome(step, seconds, [said for told in step.told for said in stage.said(told)])
        below = [f"$ kubectl gpumem {_typed(each)}\n{self._asked(each, kubectl)}" for each in step.shows]
        if self._terminal:
            self._draw(above + outcome, below)
            time.sleep(_READ_SECONDS * len(below))
        else:
            print("\n".join((outcome, *below)), flush=True)

    def _await_reading(self, stage: Stage, kubectl: Kubectl) -> None:
        """Waits until the plugin reports the current free memory. The plugin can report old figures, because the
        exporter reads the device only every 5 s."""
        ends = time.monotonic() + _READING_SECONDS
        while time.monotonic() < ends and f", {stage.card.free_mib} free" not in self._asked("who", kubectl):
            time.sleep(1)

    def _draw(self, above: str, below: list[str]) -> None:
        self._drawn = time.monotonic()
        print(CLEAR + "\n".join((above, *below)), end="", flush=True)

    def _asked(self, verb: str, kubectl: Kubectl) -> str:
        try:
            return cli.text_of(_typed(verb).split(), kubectl, self._paper)
        # After an error of the plugin, the demo shows the error in place of the report, and continues.
        except AgentError as error:
            return f"gpumem: {error}\n"


def _typed(verb: str) -> str:
    return f"{verb} --pool t4" if verb == "who" else verb


def _kubectl(kubeconfig: Path) -> Kubectl:
    return Kubectl([f"--kubeconfig={kubeconfig}"], paths.program("kubectl"))


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
        config[agent][key] = seconds


def _roll_out(folder: Path, held: HeldCluster) -> None:
    """Rolls prod out with the changed settings. If Pulumi fails, raises ClusterError with Pulumi's output."""
    home = folder / "prod"
    home.mkdir()
    made = workspace(home)
    made.change(shorten_waits)
    for arguments in (("stack", "init", "prod"), ("up", "--stack", "prod", "--yes", "--skip-preview")):
        _pulumi(made, held, *arguments)


def _pulumi(made: Workspace, held: HeldCluster, *arguments: str) -> None:
    """Runs Pulumi in a new session, then kills all processes of the session.

    If the demo killed only the CLI, Pulumi's plugins would continue to run.
    """
    log = made.folder / "pulumi.log"
    # Pulumi does not save the state after each step, because the demo deletes the state together with the cluster.
    quick = {"PULUMI_SKIP_CHECKPOINTS": "true", "KUBECONFIG": str(held.kubeconfig)}
    with log.open("wb") as output:
        child = subprocess.Popen(
            [paths.program("pulumi"), *arguments, "--non-interactive", "--color", "never"],
            cwd=made.project,
            env={**made.env, **quick},
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
