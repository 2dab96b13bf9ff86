"""Serves the GPU memory use of record 0000's workloads, as Prometheus would."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tenancy.names import METRIC_POD_USED
from tenancy.units import MIB
from tests.support.api_server import QuietServer
from tests.support.e2e.records_world import USE_MIB, World, namespace_of
from toolchain.cluster.card import UUID


@contextmanager
def history(world: World) -> Iterator[str]:
    series = list(_series(world))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = series if METRIC_POD_USED in self.path else []
            content = json.dumps({"status": "success", "data": {"resultType": "vector", "result": found}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    server = QuietServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _series(world: World) -> Iterator[dict[str, Any]]:
    for app, mib in USE_MIB.items():
        namespace = namespace_of(app)
        labels = {"namespace": namespace, "pod": world.pod(app)["metadata"]["name"], "uuid": UUID}
        yield {"metric": labels, "value": [time.time(), str(mib * MIB)]}
