"""The stack file is read as the engine reads it, and garbage is refused in one line with its place."""

from pathlib import Path

import pytest

from stacks import settings, stackfile
from tests.support.prod import PROD


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "Pulumi.x.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(folder: Path, text: str | bytes) -> str:
    with pytest.raises(stackfile.StackFileError) as refused:
        stackfile.read(written(folder, text))
    message = str(refused.value)
    assert "\n" not in message
    return message.removeprefix(str(folder / "Pulumi.x.yaml"))


def problems(folder: Path, text: str) -> list[str]:
    """The lines on a file that can be read, each with its place."""
    path = written(folder, text)
    return [problem.line.removeprefix(str(path)) for problem in stackfile.read(path).problems]


def test_a_key_is_the_projects_where_the_engine_takes_it_for_one(tmp_path: Path) -> None:
    text = "config: {gate: {}, gpu-tenancy:pools: {}, other:gate: 1, GPU-TENANCY:gate: 2, gpu-tenancy:config:gate: 3}"
    contents = stackfile.read(written(tmp_path, text))
    assert contents.values == {"gate": {}, "pools": {}}
    assert contents.foreign == ("other:gate", "GPU-TENANCY:gate", "gpu-tenancy:config:gate")
    assert contents.problems == ()


def test_scalars_are_what_the_engine_takes_them_for(tmp_path: Path) -> None:
    """Measured with Pulumi 3.259: what the program got for each."""
    text = "{a: yes, b: 1:30, c: on, d: 3.0, e: 5e3, f: +5, g: ~, h: True, i: 2.5, j: '1', 1: x, k: -0, l: nULL, m: =}"
    contents = stackfile.read(written(tmp_path, f"config: {{gpu-tenancy:x: {text}}}"))
    assert contents.problems == ()
    assert contents.values == {
        "x": {
            "a": "yes",
            "b": "1:30",
            "c": "on",
            "d": 3,
            "e": 5000,
            "f": 5,
            "g": None,
            "h": True,
            "i": 2.5,
            "j": "1",
            "1": "x",
            "k": 0,
            "l": "nULL",
            "m": "=",
        }
    }


def test_a_map_takes_another_over_as_the_engine_has_it(tmp_path: Path) -> None:
    text = "config: {gpu-tenancy:x: {a: &a {b: 1, c: 2}, d: {c: 3, <<: *a}}}"
    assert stackfile.read(written(tmp_path, text)).values == {"x": {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}}


# A value of x that readers of YAML take for different things; what is said, and what is judged further on.
AMBIGUOUS: dict[str, tuple[str, str, object]] = {
    "octal": ("05000", "05000 is octal, 2560 to the engine; write 5000, or quote it", 5000),
    "a zero before eight": ("08", "08 is not a number to every reader; write 8, or quote it", 8),
    "octal of YAML 1.2": ("0o17", "0o17 is not a number to every reader; write 15, or quote it", 15),
    "hexadecimal": ("0x1F", "0x1F is not a number to every reader; write 31, or quote it", 31),
    "binary": ("-0b11", "-0b11 is not a number to every reader; write -3, or quote it", -3),
    "an underscore": ("1_000", "1_000 is not a number to every reader; write 1000, or quote it", 1000),
    "a date": ("2026-01-01", "2026-01-01 is a date in YAML; quote it", "2026-01-01"),
    "a date to the engine alone": ("2026-1-1", "2026-1-1 is a date in YAML; quote it", "2026-1-1"),
    "no number": (".nan", ".nan is no number that JSON has; write one, or quote it", ".nan"),
    "infinity": ("-.inf", "-.inf is no number that JSON has; write one, or quote it", "-.inf"),
    "a number without end": (
        "99999999999999999999",
        "99999999999999999999 is another number to some readers; write a smaller one, or quote it",
        2**53,
    ),
    "half a character": ('"\\ud800"', "has half of a surrogate pair; write the character itself", "\ufffd"),
}


@pytest.mark.parametrize(("text", "message", "value"), AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_what_readers_differ_on_is_a_problem_with_its_place_and_hides_nothing(
    tmp_path: Path, text: str, message: str, value: object
) -> None:
    path = written(tmp_path, f"config: {{gpu-tenancy:x: {{a: {text}, b: 1}}}}")
    contents = stackfile.read(path)
    assert [problem.line for problem in contents.problems] == [f"{path}:1:29: x.a: {message}"]
    assert contents.values == {"x": {"a": value, "b": 1}}


@pytest.mark.parametrize("name", ["null", "~", "2026-01-01", "2.50", "0x10", "05", "True", ".inf", "1e3"])
def test_a_name_that_yaml_takes_for_something_else_is_to_be_quoted(tmp_path: Path, name: str) -> None:
    assert problems(tmp_path, f"config: {{gpu-tenancy:x: {{{name}: 1}}}}") == [
        f":1:26: x.{name}: {name} is not a text in YAML; quote it"
    ]
    assert problems(tmp_path, f"config: {{gpu-tenancy:x: {{'{name}': 1}}}}") == []


TWICE = {
    "a key twice": (
        "config:\n  gpu-tenancy:residents: {}\n  gpu-tenancy:residents: {}\n",
        ":3:3: gpu-tenancy:residents: is there twice; remove one",
    ),
    "a nested key twice": (
        "config:\n  gpu-tenancy:residents:\n    a: {gpumem_mib: 1}\n    b: {}\n    a: {}\n",
        ":5:5: residents.a: is there twice; remove one",
    ),
    "a name once with quotes and once without": (
        "config: {a: {1: x, '1': y}}",
        ":1:20: a.1: is there twice; remove one",
    ),
    "a provider's key twice": (
        "config: {kubernetes:x: {a: 05, a: 06}}",
        ":1:32: kubernetes:x.a: is there twice; remove one",
    ),
    "config twice": ("config: {}\nconfig: {}", ":2:1: config: is there twice; remove one"),
    "a key once with the project's name and once without": (
        "config: {residents: {}, gpu-tenancy:residents: {}}",
        ":1:25: residents: is there twice, with gpu-tenancy: and without; remove one",
    ),
    "a key beside config": (
        "config: {}\nresidents: {}",
        ":2:1: residents: stands beside config, where nobody reads it; move it there or remove it",
    ),
    "a misspelt key of pulumi's": (
        "config: {}\nencryptionSalt: x",
        ":2:1: encryptionSalt: stands beside config, where nobody reads it; did you mean encryptionsalt?",
    ),
}


@pytest.mark.parametrize(("text", "line"), TWICE.values(), ids=TWICE.keys())
def test_a_key_that_is_dropped_or_there_twice_is_a_problem(tmp_path: Path, text: str, line: str) -> None:
    assert problems(tmp_path, text) == [line]


def test_a_providers_values_are_its_own_matter(tmp_path: Path) -> None:
    assert problems(tmp_path, "config: {kubernetes:x: {a: 05, b: 2026-01-01, null: 1}}\nsecretsprovider: x") == []


GARBAGE = {
    "a map for a key": ("config: {? {a: 1} : 2}", ":1:12: a key must be a scalar"),
    "a list for a key": ("config: {? [a] : 2}", ":1:12: a key must be a scalar"),
    "an open bracket": ("config: [", ":1:10: expected the node content, but found '<stream end>'"),
    "a tab": ("config:\n\t- x", ":2:1: found character '\\t' that cannot start any token"),
    "an unknown tag": (
        "config: !!python/object:os.system {}",
        ":1:9: tag:yaml.org,2002:python/object:os.system is a tag; write the value without it",
    ),
    "a set": ("config: !!set {a, b}", ":1:9: tag:yaml.org,2002:set is a tag; write the value without it"),
    "a list to take over": ("config: {x: {<<: [1]}}", ":1:18: << takes one map"),
    "bytes": (b"\xff\xfe\x00\x80config", ": is not a text file in YAML"),
    "control characters": ("config: \x07", ": is not a text file in YAML"),
    "a circle": ("config: {x: &a {b: *a}}", ": goes around in a circle, or too deep; write maps, lists and scalars"),
    "a map that takes itself over": (
        "config: {x: &a {<<: *a}}",
        ": goes around in a circle, or too deep; write maps, lists and scalars",
    ),
    "two documents": (
        "config: {}\n---\nconfig: {}",
        ":2:1: a second document begins here; a stack file is one, without ---",
    ),
    "nothing": ("", ": has no map under the key config; add it"),
    "a sentence": ("these are not the settings", ": has no map under the key config; add it"),
    "a list": ("- config", ": has no map under the key config; add it"),
    "an empty config": ("config:", ": has no map under the key config; add it"),
    "config in capitals": (
        "Config: {}",
        ":1:1: Config: stands beside config, where nobody reads it; did you mean config?",
    ),
}


@pytest.mark.parametrize(("text", "message"), GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_refused_in_one_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert refusal(tmp_path, text) == message


@pytest.mark.no_cover
def test_depth_without_end_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "too deep" in refusal(tmp_path, "config: " + "[" * 1500)


def test_half_a_character_in_a_name_is_one_line(tmp_path: Path) -> None:
    """Not also one on JSON that cannot be read, which says nothing of where."""
    path = written(tmp_path, PROD.read_text().replace("    immich:", '    "\\ud83d": {}\n    immich:', 1))
    with pytest.raises(settings.ConfigError) as refused:
        settings.load_file(path)
    (line,) = str(refused.value).splitlines()
    assert "tenants.\ufffd: has half of a surrogate pair; write the character itself" in line


def test_aliases_of_aliases_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stackfile, "_MOST_VALUES", 1000)
    lines = [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    text = "\n".join(["config:", "  a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", *lines])
    assert "more than 1000 values" in refusal(tmp_path, text)


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
