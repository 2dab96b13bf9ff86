"""Supervises the processes of a cluster: starts them in order, watches them, and stops them in reverse order.

The supervisor ends on SIGTERM, or when one of its processes ends. With `--held`, the supervisor reads standard input,
and ends when standard input is closed. Therefore the supervisor ends when its parent process ends. The line `restart
NAME` on standard input restarts a process. If the supervisor is killed on Linux, the kernel kills the other processes
too.
"""

import asyncio
import json
import os
import queue
import signal
import sys
import threading
from contextlib import suppress

from toolchain.cluster import control_plane, node, relay, simulated
from toolchain.cluster.api import ClusterApi, wait_until
from toolchain.cluster.control_plane import Ports
from toolchain.cluster.errors import ClusterError
from toolchain.cluster.extent import Extent
from toolchain.cluster.image import agent_image, scheduler_image
from toolchain.cluster.kueue import KueueRunner
from toolchain.cluster.objects import objects, real_pod_policy
from toolchain.cluster.paths import Folder
from toolchain.cluster.process import ChildProcess, Command

READY_SECONDS = 120
_STOP = "stop"


class Supervisor:
    def __init__(self, folder: Folder, *, extent: Extent) -> None:
        self._folder = folder
        self._extent = extent
        self._ports = Ports.free()
        self._api = ClusterApi(folder.kubeconfig)
        self._parts: dict[str, ChildProcess] = {}
        self._orders: queue.SimpleQueue[str] = queue.SimpleQueue()

    def run(self, *, until_input_ends: bool) -> int:
        """Runs the cluster and returns the exit code: 1 if the cluster does not start, or one of its processes ends."""
        signal.signal(signal.SIGTERM, lambda *_: self._orders.put(_STOP))
        signal.signal(signal.SIGINT, lambda *_: self._orders.put(_STOP))
        if until_input_ends:
            threading.Thread(target=self._listen, daemon=True).start()
        kueue = KueueRunner(self._api, self._folder, self._ports)
        try:
            self._start()
            self._report()
            self._watch(kueue)
            return 0
        except ClusterError as error:
            # The supervisor prints the message at once, because the stop takes some seconds.
            print(f"cluster: {error}", file=sys.stderr, flush=True)
            return 1
        finally:
            kueue.stop()
            self._folder.state.unlink(missing_ok=True)
            for part in reversed(self._parts.values()):
                part.stop()
            if self._extent.runs_containers:
                node.remove_cgroups(self._folder)

    def _start(self) -> None:
        folder, ports = self._folder, self._ports
        control_plane.write_credentials(folder, ports)
        self._run(control_plane.etcd(folder, ports))
        alone = self._extent is Extent.API_SERVER
        self._run(control_plane.api_server(folder, ports, alone=alone))
        wait_until(self._is_ready, READY_SECONDS, "the API server is ready")
        if not alone:
            self._populate()

    def _populate(self) -> None:
        folder, ports = self._folder, self._ports
        real = self._extent.runs_containers
        for command in (
            control_plane.controller_manager(folder, ports),
            control_plane.scheduler(folder, ports),
            simulated.kwok(folder),
        ):
            self._run(command)
        if real:
            self._host_node()
        for collection, manifest in (*objects(), *(real_pod_policy(agent_image(), scheduler_image()) if real else ())):
            self._api.create(collection, manifest)
        wait_until(self._nodes_are_ready, READY_SECONDS, "all nodes are Ready")
        wait_until(self._accounts_are_made, READY_SECONDS, "the namespace default has its account")

    def _host_node(self) -> None:
        ways = node.forwarded_connections(self._folder, self._ports)
        threading.Thread(target=lambda: asyncio.run(relay.serve(ways)), daemon=True).start()
        self._run(node.command(self._folder, self._ports, toolkit=self._extent is Extent.GPU_NODE))

    def _run(self, command: Command) -> None:
        self._parts[command.name] = ChildProcess.start(command, self._folder)

    def _is_ready(self) -> bool:
        self._check()
        return self._api.request("GET", "/readyz").code == 200

    def _nodes_are_ready(self) -> bool:
        self._check()
        nodes = (self._api.get("/api/v1/nodes") or {"items": []})["items"]
        there = not self._extent.runs_containers or any(
            found["metadata"]["name"] == control_plane.NODE for found in nodes
        )
        return there and all(simulated.is_ready(found) for found in nodes)

    def _accounts_are_made(self) -> bool:
        self._check()
        return self._api.get("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def _check(self) -> None:
        for part in self._parts.values():
            part.check()

    def _report(self) -> None:
        """Writes the state file. Other processes poll the state file, so the supervisor replaces it in one step."""
        pids = {name: part.pid for name, part in self._parts.items()}
        fresh = self._folder.state.with_suffix(".new")
        fresh.write_text(json.dumps({"pid": os.getpid(), "server": self._api.server, "processes": pids}))
        fresh.rename(self._folder.state)

    def _watch(self, kueue: KueueRunner) -> None:
        while True:
            with suppress(queue.Empty):
                order = self._orders.get(timeout=kueue.pause_seconds)
                if order == _STOP:
                    return
                self._obey(order)
            self._check()
            if self._extent is Extent.API_SERVER:
                continue
            try:
                kueue.step()
            except (OSError, ClusterError) as error:
                print(f"kueue: {error}", file=sys.stderr, flush=True)

    def _obey(self, order: str) -> None:
        name = order.removeprefix("restart ")
        part = self._parts[name]
        part.stop()
        self._run(part.command)
        self._report()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._orders.put(line.strip())
        self._orders.put(_STOP)
