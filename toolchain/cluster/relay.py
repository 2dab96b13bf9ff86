"""Forwards connections between this machine's network and the node's network namespace, through Unix sockets."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CHUNK = 1 << 16

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Tcp:
    host: str
    port: int

    async def listen(self, serve: Callable[..., Awaitable[None]]) -> None:
        await asyncio.start_server(serve, self.host, self.port)

    async def connect(self) -> Streams:
        return await asyncio.open_connection(self.host, self.port)


@dataclass(frozen=True)
class Unix:
    path: Path

    async def listen(self, serve: Callable[..., Awaitable[None]]) -> None:
        await asyncio.start_unix_server(serve, self.path)

    async def connect(self) -> Streams:
        return await asyncio.open_unix_connection(self.path)


End = Tcp | Unix


async def serve(ways: Iterable[tuple[End, End]]) -> None:
    """Forwards connections from the first address of each pair to the second address, until the task is cancelled."""
    for near, far in ways:
        await near.listen(_passing_to(far))
    await asyncio.Event().wait()


def _passing_to(far: End) -> Callable[..., Awaitable[None]]:
    async def passing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await far.connect()
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

    return passing


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()
