"""Tests the page of `kubectl gpumem board` over HTTP."""

import http.client
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from agents.runtime.http_server import Server
from gpumem.board import Board
from gpumem.board_server import BoardPage
from tests.support.board import read, sample
from tests.support.plugin import install
from toolchain import plugin


class Boards:
    """Reads a board, and counts the readings."""

    def __init__(self) -> None:
        self.readings = 0

    def __call__(self) -> Board:
        self.readings += 1
        return read(sample())


@contextmanager
def serving(boards: Boards) -> Iterator[str]:
    page = BoardPage(read=boards, path="/secret/", seconds=60)
    with Server("127.0.0.1", 0, page.answer) as server:
        threading.Thread(target=lambda: server.serve_forever(0.02), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/secret/"
        server.shutdown()


def request(url: str, method: str = "GET", path: str | None = None) -> tuple[int, str]:
    split = urlsplit(url)
    connection = http.client.HTTPConnection(split.hostname or "", split.port, timeout=60)
    connection.request(method, split.path if path is None else path)
    response = connection.getresponse()
    return response.status, response.read().decode()


def test_only_a_get_of_the_secret_path_is_answered() -> None:
    with serving(Boards()) as url:
        assert request(url, "POST")[0] == 405
        assert [request(url, path=path)[0] for path in ("/", "/secret", "/secret/../", "//", "/favicon.ico")] == [
            404
        ] * 5


def test_many_readers_at_once_cause_one_reading() -> None:
    boards = Boards()
    with serving(boards) as url, ThreadPoolExecutor(8) as readers:
        found = [*readers.map(lambda _: request(url), range(200))]
    assert {status for status, _ in found} == {200}
    assert boards.readings == 1


def test_the_plugin_serves_the_page_until_it_is_interrupted(tmp_path: Path) -> None:
    install(tmp_path, sample())
    path = os.pathsep.join((str(tmp_path), str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    command = [tmp_path / plugin.NAME, "board", "--context", "lab"]
    with subprocess.Popen(command, env={"PATH": path}, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        status, page = request(url)
        again = request(url, path="/")[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert (status, again) == (200, 404)
    assert "llama-swap-5469957f7f-thbxn" in page
    calls = (tmp_path / "calls").read_text()
    assert "--context=lab" in calls
    assert not Path(calls.split("=")[1].split(" ")[0]).parent.exists()
