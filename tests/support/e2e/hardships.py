"""Causes faults in the Jobs of agents."""

from collections.abc import Callable
from typing import Any

from toolchain.cluster.image import agent_image

_RELAY = """
import asyncio, os


async def copy(reader, writer, delay_seconds):
    while data := await reader.read(1 << 16):
        await asyncio.sleep(delay_seconds)
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(reader, writer):
    api = await asyncio.open_connection(os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"])
    await asyncio.gather(copy(reader, api[1], 0), copy(api[0], writer, float(os.environ["DELAY_SECONDS"])))


async def main():
    async with await asyncio.start_server(serve, "", 6443) as server:
        await server.serve_forever()


asyncio.run(main())
"""

Change = Callable[[dict[str, Any]], object]


def behind_an_api_that_takes(seconds: float) -> Change:
    def change(pod: dict[str, Any]) -> None:
        (agent,) = pod["containers"]
        relay = {
            "name": "relay",
            "image": agent_image(),
            "restartPolicy": "Always",
            "command": ["python", "-I", "-c", _RELAY],
            "env": [{"name": "DELAY_SECONDS", "value": str(seconds)}],
            "startupProbe": {"tcpSocket": {"port": 6443}, "periodSeconds": 1, "failureThreshold": 60},
            "securityContext": agent["securityContext"],
        }
        pod["initContainers"] = [relay]
        agent["env"] += [
            {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"},
            {"name": "KUBERNETES_SERVICE_PORT", "value": "6443"},
        ]

    return change


def without_rights(pod: dict[str, Any]) -> None:
    pod["serviceAccountName"] = "default"


def nothing(pod: dict[str, Any]) -> None:
    pass
