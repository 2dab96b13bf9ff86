"""The stack file is read as the engine reads it, and garbage is refused in one line with its place."""

from pathlib import Path

import pytest

from stacks import stackfile


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


def test_only_this_projects_keys_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, "config: {gpu-tenancy:gate: {}, other:gate: 1, gpu-tenancyx:gate: 2}")
    assert stackfile.read(path) == {"gate": {}}


def test_scalars_are_what_the_engine_takes_them_for(tmp_path: Path) -> None:
    """Measured with Pulumi 3.259: what the program got for each."""
    text = "{a: yes, b: 1:30, c: on, d: 3.0, e: 5e3, f: 010, g: 1_0, h: 0x10, i: ~, j: True, k: 2.5, l: '1', 1: x}"
    assert stackfile.read(written(tmp_path, f"config: {{gpu-tenancy:x: {text}}}")) == {
        "x": {
            "a": "yes",
            "b": "1:30",
            "c": "on",
            "d": 3,
            "e": 5000,
            "f": 8,
            "g": 10,
            "h": 16,
            "i": None,
            "j": True,
            "k": 2.5,
            "l": "1",
            "1": "x",
        }
    }


GARBAGE = {
    "a key twice": (
        "config:\n  gpu-tenancy:residents: {}\n  gpu-tenancy:residents: {}\n",
        ":3:3: the key 'gpu-tenancy:residents' is there twice; remove one",
    ),
    "a nested key twice": (
        "config:\n  gpu-tenancy:residents:\n    a: {gpumem_mib: 1}\n    b: {}\n    a: {}\n",
        ":5:5: the key 'a' is there twice; remove one",
    ),
    "a name once with quotes and once without": (
        "config: {1: x, '1': y}",
        ":1:16: the key '1' is there twice; remove one",
    ),
    "a map for a key": ("config: {? {a: 1} : 2}", ":1:12: a key must be a scalar"),
    "a list for a key": ("config: {? [a] : 2}", ":1:12: a key must be a scalar"),
    "a date": (
        "config: {gpu-tenancy:x: {a: 2026-01-01}}",
        ":1:29: 2026-01-01 is a date in YAML; quote it",
    ),
    "an open bracket": ("config: [", ":1:10: expected the node content, but found '<stream end>'"),
    "a tab": ("config:\n\t- x", ":2:1: found character '\\t' that cannot start any token"),
    "an unknown tag": (
        "config: !!python/object:os.system {}",
        ":1:9: could not determine a constructor for the tag 'tag:yaml.org,2002:python/object:os.system'",
    ),
    "bytes": (b"\xff\xfe\x00\x80config", ": is not a text file in YAML"),
    "control characters": ("config: \x07", ": is not a text file in YAML"),
    "a set": ("config: !!set {a, b}", ": holds something that JSON has no form for; write maps, lists and scalars"),
    "a circle": ("config: &a {b: *a}", ": holds something that JSON has no form for; write maps, lists and scalars"),
    "nothing": ("", ": has no map under the key config; add it"),
    "a sentence": ("these are not the settings", ": has no map under the key config; add it"),
    "a list": ("- config", ": has no map under the key config; add it"),
    "an empty config": ("config:", ": has no map under the key config; add it"),
}


@pytest.mark.parametrize(("text", "message"), GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_refused_in_one_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert refusal(tmp_path, text) == message


@pytest.mark.no_cover
def test_depth_without_end_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "JSON has no form for" in refusal(tmp_path, "config: " + "[" * 1500)


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
