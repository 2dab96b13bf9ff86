"""Tests that the program reads the stack file in the same way as Pulumi's engine."""

from pathlib import Path

import pytest

from stacks import stackfile


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "Pulumi.x.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refused(folder: Path, text: str | bytes) -> str:
    path = written(folder, text)
    with pytest.raises(stackfile.StackFileError) as error:
        stackfile.read(path)
    assert "\n" not in str(error.value)
    return str(error.value).removeprefix(str(path))


def test_a_key_is_the_projects_where_the_engine_takes_it_for_one(tmp_path: Path) -> None:
    text = "config: {gate: {}, gpu-tenancy:pools: {}, other:gate: '1', GPU-TENANCY:gate: 2, gpu-tenancy:config:gate: 3}"
    contents = stackfile.read(written(tmp_path, text))
    assert contents.values == {"gate": {}, "pools": {}}
    assert contents.foreign == {"other:gate": "1", "GPU-TENANCY:gate": "", "gpu-tenancy:config:gate": ""}


def test_scalars_are_what_the_engine_takes_them_for(tmp_path: Path) -> None:
    text = "{a: yes, b: 2026-01-01, c: on, d: +5, e: ~, f: True, g: 2.5, h: '05', 1: x}"
    contents = stackfile.read(written(tmp_path, f"config: {{gpu-tenancy:x: {text}}}"))
    assert contents.values["x"] == {
        "a": "yes",
        "b": "2026-01-01",
        "c": "on",
        "d": 5,
        "e": None,
        "f": True,
        "g": 2.5,
        "h": "05",
        "1": "x",
    }


def test_a_map_takes_another_over_as_the_engine_has_it(tmp_path: Path) -> None:
    text = "config: {gpu-tenancy:x: {a: &a {b: 1, c: 2}, d: {c: 3, <<: *a}}}"
    assert stackfile.read(written(tmp_path, text)).values == {"x": {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("config:\n  gpu-tenancy:residents: {}\n  gpu-tenancy:residents: {}\n", ":3:3: gpu-tenancy:residents is there"),
        ("config:\n  residents:\n    a: {gpumem_mib: 1}\n    b: {}\n    a: {}\n", ":5:5: a is there twice; remove one"),
        ("config: {a: {1: x, '1': y}}", ":1:20: 1 is there twice; remove one"),
        ("config: {a: {null: x}}", ":1:14: this key is not a text in YAML; quote it"),
        (
            "config: {residents: {}, gpu-tenancy:residents: {}}",
            ": residents: is there twice, with gpu-tenancy: and without; remove one",
        ),
        (
            "config: {}\nresidents: {}",
            ": residents: stands beside config, where nothing reads it; move it or remove it",
        ),
        ("config: {", ":1:10: "),
        ("config: {x: !secret y}", ":1:13: could not determine a constructor"),
        ('config: {kubernetes:context: "\\ud800"}', ": is not a text file in YAML"),
        (b"\xff\xfe\x00", ": is not a text file in YAML"),
        ("config: {}\n---\nconfig: {}", ":2:1: "),
        ("", ": has no map under the key config; add it"),
        ("config:", ": has no map under the key config; add it"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path, text: str | bytes, line: str) -> None:
    assert refused(tmp_path, text).startswith(line)


def test_a_file_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(stackfile.StackFileError, match=r"Pulumi\.y\.yaml: cannot be read: No such file or directory$"):
        stackfile.read(tmp_path / "Pulumi.y.yaml")
