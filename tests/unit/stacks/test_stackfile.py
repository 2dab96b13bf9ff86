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
    text = "{a: yes, b: 1:30, c: on, d: 3.0, e: 5e3, f: +5, g: ~, h: True, i: 2.5, j: '05', 1: x, k: -0, l: nULL, m: =}"
    contents = stackfile.read(written(tmp_path, f"config: {{gpu-tenancy:x: {text}}}"))
    assert contents.values["x"] == {
        "a": "yes",
        "b": "1:30",
        "c": "on",
        "d": 3,
        "e": 5000,
        "f": 5,
        "g": None,
        "h": True,
        "i": 2.5,
        "j": "05",
        "1": "x",
        "k": 0,
        "l": "nULL",
        "m": "=",
    }


def test_a_map_takes_another_over_as_the_engine_has_it(tmp_path: Path) -> None:
    text = "config: {gpu-tenancy:x: {a: &a {b: 1, c: 2}, d: {c: 3, <<: *a}}}"
    assert stackfile.read(written(tmp_path, text)).values == {"x": {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}}


UNLIKE = ("05000", "08", "-010", "0o17", "0x1F", "-0b11", "1_000", "2026-01-01", "2026-1-1", ".nan", "-.inf", "!x 5")


@pytest.mark.parametrize("text", UNLIKE)
def test_an_octal_number_or_a_date_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    assert refused(tmp_path, f"config: {{gpu-tenancy:x: {{a: {text}, b: 1}}}}") == (
        f":1:29: {text.removeprefix('!x ')} is an octal number, a date or a tag to some readers of YAML; write it "
        "plainly, or quote it"
    )


@pytest.mark.parametrize("name", ["null", "~", "2026-01-01", "2.50", "0x10", "05", "True", ".inf", "1e3"])
def test_a_name_that_yaml_takes_for_something_else_is_to_be_quoted(tmp_path: Path, name: str) -> None:
    told = f":1:26: {name} is not a text in YAML; quote it"
    assert refused(tmp_path, f"config: {{gpu-tenancy:x: {{{name}: 1}}}}") == told
    assert stackfile.read(written(tmp_path, f"config: {{x: {{'{name}': 1}}}}")).values == {"x": {name: 1}}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("config:\n  gpu-tenancy:residents: {}\n  gpu-tenancy:residents: {}\n", ":3:3: gpu-tenancy:residents is there"),
        ("config:\n  residents:\n    a: {gpumem_mib: 1}\n    b: {}\n    a: {}\n", ":5:5: a is there twice; remove one"),
        ("config: {a: {1: x, '1': y}}", ":1:20: 1 is there twice; remove one"),
        ("config: {a: {[1]: x}}", ":1:14: a map or a list is not a text in YAML; quote it"),
        ("config: {}\nconfig: {}", ":2:1: config is there twice; remove one"),
        (
            "config: {residents: {}, gpu-tenancy:residents: {}}",
            ": residents: is there twice, with gpu-tenancy: and without; remove one",
        ),
        (
            "config: {}\nresidents: {}",
            ": residents: stands beside config, where nothing reads it; move it or remove it",
        ),
        ("Config: {}", ": Config: stands beside config, where nothing reads it"),
        ("config: {", ":1:10: "),
        ("config: &a {b: *a}", ":1:9: found unconstructable recursive node"),
        ("config: " + "[" * 2000, ": goes around in a circle, or too deep"),
        ("config: {x: !!int x}", ":1:13: x is an octal number, a date or a tag"),
        ("config: {x: !!set {a}}", ":1:13: "),
        ('config: {kubernetes:context: "\\ud800"}', ":1:30: has the escape of a surrogate"),
        ('config: {"\\udfff": x}', ":1:10: has the escape of a surrogate"),
        (b"\xff\xfe\x00", ": is not a text file in YAML"),
        ("config: {}\n---\nconfig: {}", ":2:1: "),
        ("", ": has no map under the key config; add it"),
        ("- config", ": has no map under the key config; add it"),
        ("config:", ": has no map under the key config; add it"),
    ],
)
def test_garbage_is_refused_in_one_line(tmp_path: Path, text: str | bytes, line: str) -> None:
    assert refused(tmp_path, text).startswith(line)


def test_a_file_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(stackfile.StackFileError, match=r"Pulumi\.y\.yaml: cannot be read: No such file or directory$"):
        stackfile.read(tmp_path / "Pulumi.y.yaml")


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ({"labels": {"release": {"secure": "v1:x"}}}, True),
        ([{"a": [{"secure": "v1:x"}]}], True),
        ({"secure": {}}, False),
        ({"secure": "edit", "b": 1}, False),
        ("secure", False),
    ],
)
def test_encrypted_values_are_found_wherever_they_are(value: object, secret: bool) -> None:
    assert list(stackfile.encrypted({"alerts": value})) == (["alerts"] if secret else [])
