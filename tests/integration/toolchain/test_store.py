"""The shared cache and the checkout that points into it."""

import pytest

from tests.integration.toolchain.conftest import WRITE_GAUGE, Workshop
from toolchain.installer.errors import ToolchainError
from toolchain.installer.store import Store


def test_a_tool_is_built_once_and_a_second_checkout_only_points_to_it(workshop: Workshop) -> None:
    workshop.has_go(WRITE_GAUGE)
    tool = workshop.gauge()
    workshop.install(tool)
    second = Workshop(workshop.folder)
    other = Store(cache=workshop.store.cache, shelf=workshop.folder / "clone" / ".toolchain")
    assert not other.linked(tool)
    other.link(tool, other.entry(tool))
    assert other.linked(tool)
    second.install(tool)
    assert "gauge 1.2.3: in the cache" in second.said
    assert len(workshop.go_calls()) == 1


def test_a_failure_halfway_leaves_nothing_and_the_next_run_succeeds(workshop: Workshop) -> None:
    tool = workshop.gauge()
    workshop.has_go("echo half > $out; exit 1")
    with pytest.raises(ToolchainError):
        workshop.install(tool)
    assert [path.name for path in workshop.store.cache.iterdir() if path.is_dir()] == ["logs"]
    workshop.has_go(WRITE_GAUGE)
    workshop.install(tool)
    assert workshop.store.linked(tool)


def test_what_a_killed_run_left_is_removed_by_the_next(workshop: Workshop) -> None:
    tool = workshop.gauge()
    leftover = workshop.store.cache / f"{workshop.store.entry(tool).name}.partial-dead"
    leftover.mkdir(parents=True)
    (leftover / "gauge").write_text("half")
    workshop.has_go(WRITE_GAUGE)
    workshop.install(tool)
    assert not leftover.exists()
    assert workshop.store.holds(tool)


def test_an_entry_that_lost_a_file_is_made_again(workshop: Workshop) -> None:
    workshop.has_go(WRITE_GAUGE)
    tool = workshop.gauge()
    workshop.install(tool)
    (workshop.store.entry(tool) / "gauge").unlink()
    assert not workshop.store.linked(tool)
    workshop.install(tool)
    assert workshop.store.linked(tool)
    assert len(workshop.go_calls()) == 2


def test_equal_pins_have_one_key_wherever_the_checkout_is(workshop: Workshop) -> None:
    key = workshop.gauge().key
    moved = Workshop(workshop.folder / "moved")
    moved.module.folder.parent.mkdir(parents=True)
    workshop.module.folder.rename(moved.module.folder)
    assert moved.gauge().key == key


@pytest.mark.parametrize("file", ["go.mod", "go.sum"])
def test_another_pin_is_another_key(workshop: Workshop, file: str) -> None:
    key = workshop.gauge().key
    with (workshop.module.folder / file).open("a") as pins:
        pins.write("// changed\n")
    assert workshop.gauge().key != key


def test_other_code_of_ours_is_another_key_for_the_program_that_it_belongs_to(workshop: Workshop) -> None:
    ours, theirs = workshop.gauge(package="./gauge").key, workshop.gauge().key
    (workshop.module.folder / "gauge").mkdir()
    (workshop.module.folder / "gauge" / "main.go").write_text("package main\n")
    assert workshop.gauge(package="./gauge").key != ours
    assert workshop.gauge().key == theirs


def test_another_stamp_is_another_key(workshop: Workshop) -> None:
    assert workshop.gauge("1.2.3").key != workshop.gauge("1.2.4").key
