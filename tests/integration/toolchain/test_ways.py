"""Which way the installer takes to a tool, and what it says about it."""

import socket

import pytest

from tests.integration.toolchain.conftest import WRITE_GAUGE, Server, Workshop, says, script
from toolchain.installer.download import Internet
from toolchain.installer.errors import ToolchainError, UnavailableError
from toolchain.installer.tools.cluster import one_minor_apart


def test_the_right_version_on_path_is_taken_and_nothing_is_built(workshop: Workshop) -> None:
    found = script(workshop.bin / "gauge", says("1.2.3"))
    tool = workshop.gauge()
    workshop.install(tool)
    assert (workshop.store.shelf / "bin" / "gauge").readlink() == found
    assert workshop.store.linked(tool)
    assert f"from PATH: {found}, 1.2.3" in workshop.said


@pytest.mark.parametrize("found", ["1.2.4", "1.2.3-rc.1", "11.2.3"])
def test_another_version_on_path_is_left_alone_and_named(workshop: Workshop, found: str) -> None:
    script(workshop.bin / "gauge", says(found))
    workshop.has_go(WRITE_GAUGE)
    tool = workshop.gauge()
    workshop.install(tool)
    assert (workshop.store.shelf / "bin" / "gauge").readlink() == workshop.store.entry(tool) / "gauge"
    assert f"{workshop.bin / 'gauge'} is {found}" in workshop.said


def test_a_program_on_path_that_fails_is_not_taken(workshop: Workshop) -> None:
    script(workshop.bin / "gauge", "echo 1.2.3; exit 1")
    workshop.has_go(WRITE_GAUGE)
    workshop.install(workshop.gauge())
    assert "is of unknown version" in workshop.said


def test_the_checkouts_own_link_on_path_does_not_count(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    own = workshop.store.shelf / "bin"
    script(own / "gauge", says("1.2.3"))
    monkeypatch.setenv("PATH", str(own), prepend=":")
    workshop.has_go(WRITE_GAUGE)
    workshop.install(workshop.gauge())
    assert "not on PATH" in workshop.said


def test_what_was_found_on_path_is_looked_at_again_when_it_changes(workshop: Workshop) -> None:
    script(workshop.bin / "gauge", says("1.2.3"))
    tool = workshop.gauge()
    workshop.install(tool)
    script(workshop.bin / "gauge", f"{says('2.0.0')} # upgraded")
    assert not workshop.store.linked(tool)


def test_the_official_release_is_taken_when_its_checksum_is_the_published_one(
    workshop: Workshop, served: Server
) -> None:
    workshop.internet = Internet(served.address)
    tool = workshop.gauge(release=workshop.release(served.address, says("1.2.3")))
    workshop.install(tool)
    assert sorted(path.name for path in workshop.store.entry(tool).iterdir()) == ["gauge"]
    assert "downloading the official release; not on PATH" in workshop.said


def test_a_release_with_another_checksum_is_refused_and_nothing_is_kept(workshop: Workshop, served: Server) -> None:
    workshop.has_go(WRITE_GAUGE)
    workshop.internet = Internet(served.address)
    tool = workshop.gauge(release=workshop.release(served.address, says("1.2.3"), published="ab" * 32))
    with pytest.raises(ToolchainError, match=f"{'ab' * 32} is published for it: refused"):
        workshop.install(tool)
    assert not workshop.store.entry(tool).exists()
    assert not list(workshop.store.cache.glob("*.partial-*"))
    assert workshop.go_calls() == []


def test_a_release_that_is_not_there_is_built_instead(workshop: Workshop, served: Server) -> None:
    workshop.has_go(WRITE_GAUGE)
    workshop.internet = Internet(served.address)
    release = workshop.release(served.address, says("1.2.3"))
    (workshop.folder / "served" / "gauge.tar.gz").unlink()
    workshop.install(workshop.gauge(release=release))
    assert "building with Go; not on PATH; " in workshop.said
    assert "gauge.tar.gz: File not found" in workshop.said


def test_a_release_whose_checksum_nobody_published_is_built_instead(workshop: Workshop, served: Server) -> None:
    workshop.has_go(WRITE_GAUGE)
    workshop.internet = Internet(served.address)
    release = workshop.release(served.address, says("1.2.3"))
    (workshop.folder / "served" / "SHA256SUMS").write_text(f"{'0' * 64}  other.tar.gz\n")
    workshop.install(workshop.gauge(release=release))
    assert "does not list gauge.tar.gz" in workshop.said


def test_without_a_way_out_it_is_built_from_the_pinned_module_with_its_flags(workshop: Workshop) -> None:
    workshop.has_go(WRITE_GAUGE)
    tool = workshop.gauge(release=workshop.release("http://127.0.0.1:9", says("1.2.3")))
    workshop.install(tool)
    assert workshop.store.linked(tool)
    (call,) = workshop.go_calls()
    flags = "-tags= -gcflags=all=-dwarf=false -ldflags=-s -w -X v=1.2.3"
    assert call.startswith(f"build -trimpath -mod=readonly -buildvcs=false {flags} -p=")
    assert "building with Go; not on PATH; 127.0.0.1:9 cannot be reached (Connection refused)" in workshop.said
    assert "    go build gauge  0:0" in workshop.said


def test_the_way_out_is_looked_for_once_a_run(workshop: Workshop, served: Server) -> None:
    workshop.internet = Internet(f"{served.address}/no-such-page")
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"cannot be reached \(File not found\)"):
            workshop.internet.require()
    assert len(served.requests) == 1


def test_a_way_out_that_never_answers_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        host = f"127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=f"{host} does not answer within 0.1 s|timed out"):
            Internet(f"http://{host}/", patience_seconds=0.1).require()


def test_without_go_and_without_a_way_out_one_message_says_what_to_install(workshop: Workshop) -> None:
    tool = workshop.gauge(release=workshop.release("http://127.0.0.1:9", says("1.2.3")))
    with pytest.raises(ToolchainError) as refusal:
        workshop.install(tool)
    assert str(refusal.value) == (
        "gauge 1.2.3 cannot be had: not on PATH; 127.0.0.1:9 cannot be reached (Connection refused);"
        " and there is no Go to build it.\n"
        "Install Go 1.26.0 or newer (https://go.dev/dl), or let this machine download releases."
    )


def test_a_failing_build_shows_the_end_of_its_log_and_where_the_log_is(workshop: Workshop) -> None:
    workshop.has_go("for line in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do echo line $line; done; exit 2")
    tool = workshop.gauge()
    with pytest.raises(ToolchainError) as failure:
        workshop.install(tool)
    head, *lines = str(failure.value).splitlines()
    assert head == f"go build gauge failed (exit code 2); the end of {workshop.store.log(tool)}:"
    assert lines == [f"  | line {number}" for number in range(3, 18)]
    assert not workshop.store.entry(tool).exists()


def test_what_was_built_must_tell_the_wanted_version(workshop: Workshop) -> None:
    workshop.has_go(WRITE_GAUGE.replace("1.2.3", "0.0.0"))
    tool = workshop.gauge()
    with pytest.raises(ToolchainError, match=r"gauge: wanted 1\.2\.3, got 0\.0\.0"):
        workshop.install(tool)
    assert not workshop.store.entry(tool).exists()


@pytest.mark.parametrize(
    ("found", "accepted"),
    [("1.36.3", True), ("1.35.0", True), ("1.37.1", True), ("1.34.9", False), ("1.38.0", False), ("2.36.3", False)],
)
def test_kubectl_may_be_one_minor_version_apart(found: str, accepted: bool) -> None:
    assert one_minor_apart(found, "1.36.3") is accepted
