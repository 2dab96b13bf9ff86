"""What is more than the engine takes is refused before it starts, with the number."""

import json
from pathlib import Path

import pytest

from stacks import limits
from stacks.__main__ import main
from stacks.settings import ConfigError, load_file
from tests.support.prod import raw


@pytest.mark.no_cover
def test_ten_thousand_tenants_are_refused_with_the_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The engine said `fork/exec: argument list too long`, after a chart of a thousand lines."""
    config = raw()
    config["tenants"] = {f"tenant-{number:05}": {} for number in range(10_000)}
    path = tmp_path / "Pulumi.lab.yaml"
    path.write_text(json.dumps({"config": {f"gpu-tenancy:{name}": value for name, value in config.items()}}))
    assert main(["chart", "--stack", "lab"], tmp_path) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{path}: the configuration takes 2")
    assert "129024 at most: gpu-tenancy:tenants 2" in err
    assert len(err.splitlines()) == 1
    with pytest.raises(ConfigError):
        load_file(path)


def test_what_fits_is_no_problem() -> None:
    assert limits.problems(raw()) == []
    assert limits.problems({"residents": {"a": "x" * (limits.MOST_BYTES - 100)}}) == []
    (problem,) = limits.problems({"residents": {"a": "x" * limits.MOST_BYTES}})
    assert "move 35" in problem


@pytest.mark.parametrize("text", ["é", '"', "\\", "<", "\n"])
def test_a_character_counts_as_what_the_engine_makes_of_it(text: str) -> None:
    """Go's encoding/json writes < as an escape; a value is JSON within JSON."""
    value = json.dumps({"a": text}, ensure_ascii=False).replace("<", "\\u003c").replace(" ", "")
    outer = json.dumps({"gpu-tenancy:pools": value}, ensure_ascii=False)
    assert limits._size({"a": text}) == len(outer.encode()) - len("{ }") + len(",")


def test_half_a_character_is_counted_and_left_to_who_says_what_is_wrong_with_it() -> None:
    assert limits.problems({"tenants": {"\ud83d": {}}}) == []
