"""Builds the website of the docs, and opens its pages at the widths of a desktop and of a phone."""

import os
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.paths import ROOT

MKDOCS = ROOT / ".toolchain" / "docs" / "bin" / "python"
DESKTOP, PHONE = (1280, 900), (390, 844)
PAGES = (
    "index.html",
    "docs/start.html",
    "docs/concepts/index.html",
    "docs/concepts/seat.html",
    "docs/howto/use-two-gpus.html",
    "docs/choosing/index.html",
    "docs/reference/settings.html",
    "docs/reference/alerts.html",
    "docs/operations.html",
    "docs/adr/index.html",
)
# A script that returns the missing pictures of a page, its navigation links, and its excess width in pixels.
STATE = """(async () => {
  const pictures = [...document.querySelectorAll("article img")];
  pictures.forEach(each => each.loading = "eager");
  await Promise.all(pictures.map(each => each.complete || new Promise(done => each.onload = each.onerror = done)));
  const shown = each => each.getClientRects().length > 0;
  return {
    broken: pictures.filter(each => !each.naturalWidth).map(each => each.src),
    pictures: pictures.length,
    tooWide: document.documentElement.scrollWidth - innerWidth,
    sections: [...document.querySelectorAll(".md-tabs__link")].filter(shown).map(each => each.textContent.trim()),
    drawer: shown(document.querySelector("label.md-header__button[for=__drawer]")),
    search: document.querySelector("[data-md-component=search-query]") !== null,
  };
})()"""
SEARCH = """(async () => {
  document.querySelector("#__search").click();
  const field = document.querySelector("[data-md-component=search-query]");
  field.focus();
  field.value = "GpuMemoryBelowFloor";
  field.dispatchEvent(new Event("keyup", {bubbles: true}));
  for (let tries = 0; tries < 100; tries++) {
    const found = [...document.querySelectorAll(".md-search-result__link")].map(each => each.href);
    if (found.length) return found;
    await new Promise(done => setTimeout(done, 100));
  }
  return [];
})()"""


def build(config: Path, into: Path) -> "subprocess.CompletedProcess[str]":
    command = [str(MKDOCS), "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(into)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_its_navigation_search_and_pictures_on_a_desktop_and_a_phone(
    served: str, tab: Browser, page: str
) -> None:
    source = page.removesuffix(".html").removesuffix("index")
    for width, height in (DESKTOP, PHONE):
        tab.open(f"{served}/{page}", width, height)
        state = tab.evaluate(STATE)
        assert (state["broken"], state["search"]) == ([], True), source
        assert state["tooWide"] <= 0
        if width == DESKTOP[0]:
            assert {"Start", "Concepts", "How to", "Choosing", "Reference", "Run book"} <= set(state["sections"])
        else:
            assert state["drawer"]
        assert [address for address in tab.requested if not address.startswith((served, "data:", "blob:"))] == []


def test_the_concepts_show_their_pictures(served: str, tab: Browser) -> None:
    for page in (ROOT / "docs" / "concepts").glob("*.md"):
        if "](../pictures/" in page.read_text():
            tab.open(f"{served}/docs/concepts/{page.stem}.html", *DESKTOP)
            assert tab.evaluate(STATE)["pictures"] > 0, page.stem


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_search_finds_an_alert(served: str, tab: Browser, size: tuple[int, int]) -> None:
    tab.open(f"{served}/docs/start.html", *size)
    found = tab.evaluate(SEARCH)
    assert [each for each in found if "/docs/operations.html" in each and each.endswith("#gpumemorybelowfloor")], found


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[there](nowhere.md)", "nowhere.md"),
        ("[there](start.md#nowhere)", "start.md#nowhere"),
        ("![picture](pictures/nowhere.svg)", "nowhere.svg"),
    ],
    ids=["page", "anchor", "picture"],
)
def test_a_broken_link_fails_the_build(tmp_path: Path, text: str, complaint: str) -> None:
    """A small site is enough, because the build of the whole site needs seconds."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Home\n\n{text} and [start](start.md)\n")
    (docs / "start.md").write_text("# Start\n")
    rules = (ROOT / "mkdocs.yml").read_text().partition("\nvalidation:")[2].partition("\n\n")[0]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: small\nstrict: true\nvalidation:{rules}\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1
    assert complaint in done.stderr
