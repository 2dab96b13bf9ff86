"""Builds from source spend no more than they must."""

import io
import os
import time

import pytest

from tests.integration.toolchain.conftest import WRITE_GAUGE, Workshop, script
from toolchain.installer import console
from toolchain.installer.ahead import Ahead


@pytest.mark.parametrize(("cores", "threads"), [(2, "1"), (4, "1"), (16, "")])
def test_few_cores_compile_packages_side_by_side_and_not_one_with_threads(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, cores: int, threads: str
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.delenv("GOMAXPROCS", raising=False)
    monkeypatch.delenv("GOGC", raising=False)
    workshop.has_go(f'echo "$GOGC/$GOMAXPROCS" > {workshop.folder}/env\n{WRITE_GAUGE}')
    workshop.install(workshop.gauge())
    assert f" -p={cores} " in workshop.go_calls()[0]
    assert (workshop.folder / "env").read_text() == f"400/{threads}\n"


def test_what_the_user_set_for_go_stays(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOGC", "50")
    workshop.has_go(f'echo "$GOGC" > {workshop.folder}/env\n{WRITE_GAUGE}')
    workshop.install(workshop.gauge())
    assert (workshop.folder / "env").read_text() == "50\n"


def test_a_step_says_how_long_it_took_and_how_much_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_children_seconds", iter([10.0, 105.0]).__next__)
    output = io.StringIO()
    with console.Console(output).step("go build gauge"):
        pass
    assert output.getvalue() == "    go build gauge  0:00, CPU 1:35\n"


def test_the_modules_of_all_builds_are_fetched_once_from_the_first_build_on(workshop: Workshop) -> None:
    script(workshop.bin / "go", f'echo "$PWD $*" >> {workshop.folder}/go-calls')
    first, second = workshop.gauge(package="example.com/one"), workshop.gauge(package="./two")
    with Ahead([first, second]) as ahead:
        assert workshop.go_calls() == []
        ahead.start()
        ahead.start()
        while not workshop.go_calls():
            time.sleep(0.01)
    folder = workshop.module.folder
    assert workshop.go_calls() == [f"{folder} list -e -mod=readonly -deps -tags= -f  ./two example.com/one"]


def test_downloads_that_are_no_longer_needed_are_ended(workshop: Workshop) -> None:
    os.mkfifo(workshop.folder / "never")
    script(workshop.bin / "go", f"echo $$ > {workshop.folder}/pid.new; cd {workshop.folder}; cat never")
    os.mkfifo(workshop.folder / "pid.new")
    with Ahead([workshop.gauge()]) as ahead:
        ahead.start()
        process = int((workshop.folder / "pid.new").read_text())
        os.kill(process, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
