"""Opens the page of `kubectl gpumem board` in a browser, at the widths of a desktop and of a phone, and over HTTP."""

import http.client
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agents.runtime.errors import AgentError
from agents.runtime.http_server import Server
from gpumem.board import Board, without_names
from gpumem.board_server import BoardPage
from tests.support.board import read, sample
from tests.support.browser import Browser
from tests.support.page_texts import LEAST_CONTRAST, LEAST_PIXELS, TEXTS, overlaps
from tests.support.plugin import install
from tests.support.waiting import PATIENCE_SECONDS
from toolchain import plugin

DESKTOP, PHONE = (1280, 900), (390, 844)
LONGEST = "long-" * 12 + "end"  # 63 characters, the most in a DNS label
HOSTILE = "</td></main><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
UNBROKEN = "x" * 400
SHOWN = "document.body.innerText"


def demanding() -> Board:
    """Returns a board with the longest names, with long words and with hostile texts."""
    found = sample()
    for pod in found.lists["/api/v1/pods"][:2]:
        pod["metadata"] |= {"name": LONGEST, "namespace": f"{pod['metadata']['namespace']}-{LONGEST}"[:63]}
    shown = read(found)
    return replace(shown, who=replace(shown.who, unknown=(HOSTILE, UNBROKEN)))


class Boards:
    """Reads the present board, and counts the readings. `board` may be an error."""

    def __init__(self, board: Board | AgentError) -> None:
        self.board = board
        self.readings = 0

    def __call__(self) -> Board:
        self.readings += 1
        if isinstance(self.board, AgentError):
            raise self.board
        return self.board


@contextmanager
def serving(boards: Boards, seconds: int = 1) -> Iterator[tuple[str, BoardPage]]:
    page = BoardPage(read=boards, path="/secret/", seconds=seconds)
    with Server("127.0.0.1", 0, page.answer) as server:
        threading.Thread(target=lambda: server.serve_forever(0.02), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/secret/", page
        server.shutdown()


def until(tab: Browser, condition: str) -> None:
    """Waits until a condition in the page is true."""
    script = f"""new Promise((done, failed) => {{
      const began = Date.now(), look = () => {condition} ? done(true)
        : Date.now() - began > {PATIENCE_SECONDS * 1000} ? failed(document.body.innerText) : setTimeout(look, 50);
      look();
    }})"""
    assert tab.evaluate(script)


@pytest.mark.parametrize(("scheme", "named"), [("light", True), ("dark", True), ("light", False)])
def test_the_texts_of_the_page_are_whole_readable_and_apart(tab: Browser, scheme: str, named: bool) -> None:
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    with serving(Boards(demanding() if named else without_names(demanding())), 60) as (url, _):
        for width, height in (DESKTOP, PHONE):
            tab.open(url, width, height)
            state = tab.evaluate(TEXTS)
            texts = state["texts"]
            assert overlaps(texts) == []
            assert state["width"] <= width
            assert [each["text"] for each in texts if each["cut"]] == []
            assert [each["text"] for each in texts if each["pixels"] < LEAST_PIXELS] == []
            assert [each["text"] for each in texts if each["contrast"] < LEAST_CONTRAST] == []
            assert (state["title"], state["unlabelled"], state["pictures"]) == ("GPU memory", 0, 2)
            assert tab.requested == [url]
            assert (LONGEST in tab.evaluate(SHOWN)) is named


def test_the_page_shows_new_numbers_without_being_loaded_again(tab: Browser) -> None:
    boards = Boards(read(sample()))
    with serving(boards) as (url, page):
        tab.open(url, *PHONE)
        assert "13800 of 14000 MiB held" in tab.evaluate(SHOWN)
        tab.evaluate("window.loaded = 1")
        found = sample()
        del found.lists["/api/v1/pods"][1]
        boards.board = read(found)
        page.refresh()
        until(tab, "document.body.innerText.includes('8800 of 14000 MiB held')")
        boards.board = AgentError("the API server is away")
        page.refresh()
        until(tab, "document.body.innerText.includes('These numbers are old: the API server is away')")
        assert "8800 of 14000 MiB held" in tab.evaluate(SHOWN)
        assert tab.evaluate("window.loaded") == 1
        assert {*tab.requested} == {url}


def test_the_page_keeps_its_numbers_while_the_board_is_away(tab: Browser) -> None:
    boards = Boards(read(sample()))
    lost = "document.body.innerText.includes('The board does not answer.')"
    with serving(boards) as (url, _):
        tab.open(url, *PHONE)
        assert tab.evaluate(lost) is False
    until(tab, lost)
    assert "13800 of 14000 MiB held" in tab.evaluate(SHOWN)


def request(url: str, method: str = "GET", path: str | None = None) -> tuple[int, str]:
    split = urlsplit(url)
    connection = http.client.HTTPConnection(split.hostname or "", split.port, timeout=PATIENCE_SECONDS)
    connection.request(method, split.path if path is None else path)
    response = connection.getresponse()
    return response.status, response.read().decode()


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
        assert process.wait(PATIENCE_SECONDS) == 130
    assert (status, again) == (200, 404)
    assert "llama-swap-5469957f7f-thbxn" in page
    calls = (tmp_path / "calls").read_text()
    assert "--context=lab" in calls
    assert not Path(calls.split("=")[1].split(" ")[0]).parent.exists()
