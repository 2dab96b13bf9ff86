"""Tests stack files that consist of several files."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from stacks import settings, stackfile
from stacks.__main__ import main
from tenancy.names import PROJECT
from tests.support.prod import PROD, as_the_engine, raw
from tests.support.prod import of_the_engine as load


def write(folder: Path, *, files: Any, out: tuple[str, ...] = ("tenants", "residents"), **texts: str) -> Path:
    config = {name: value for name, value in raw().items() if name not in out}
    path = folder / "Pulumi.x.yaml"
    path.write_text(json.dumps({"config": {f"{PROJECT}:{name}": v for name, v in {**config, "files": files}.items()}}))
    for name, text in texts.items():
        file = folder / f"{name.replace('__', '/')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


def split(folder: Path) -> Path:
    seats = list(raw()["residents"].items())
    texts = {
        "stacks__a": json.dumps({"tenants": raw()["tenants"], "gpu-tenancy:residents": dict(seats[:2])}),
        "stacks__b": json.dumps({"residents": dict(seats[2:])}),
    }
    path = write(folder, files=["stacks"], **texts)
    (folder / "stacks" / "README.md").write_text("not read")
    return path


def refused(path: Path) -> list[str]:
    with pytest.raises(settings.ConfigError) as error:
        settings.load_file(path)
    return str(error.value).replace(f"{path.parent}/", "").splitlines()


def of_the_engine(monkeypatch: pytest.MonkeyPatch, path: Path, **more: Any) -> settings.StackSettings:
    values = {name.removeprefix(f"{PROJECT}:"): value for name, value in json.loads(path.read_text())["config"].items()}
    return load(monkeypatch, as_the_engine(values | more), path.parent)


def test_prod_in_files_is_prod_to_chart_and_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, prod = split(tmp_path), settings.load_file(PROD)
    declared = settings.load_file(path)
    assert declared.model_copy(update={"files": []}) == prod
    assert declared.ledger() == prod.ledger()
    assert of_the_engine(monkeypatch, path) == declared
    assert main(["chart", "--stack", "x"], tmp_path) == 0
    in_files = capsys.readouterr().out
    assert main(["chart", "--stack", "prod"], PROD.parent) == 0
    assert in_files == capsys.readouterr().out


@pytest.mark.no_cover
def test_more_than_the_engine_takes_is_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"tenant-{number:05}" for number in range(2000)]
    tenants = "tenants:\n" + "".join(f"  {name}: {{}}\n" for name in names)
    seats = "".join(f"  {name}: {{tenant: {name}, pool: t4, gpumem_mib: 3000}}\n" for name in names)
    kept = {name: json.dumps({name: raw()[name]}) for name in ("tenants", "residents")}
    texts = {"s__0": kept["tenants"], "s__1": kept["residents"], "s__2": tenants, "s__3": f"residents:\n{seats}"}
    path = write(tmp_path, files=["s"], **texts)
    declared = settings.load_file(path)
    assert len(tenants + seats) > stackfile.MOST_BYTES
    assert len(declared.tenants) == 2000 + len(raw()["tenants"])
    assert of_the_engine(monkeypatch, path) == declared


def test_what_only_the_engine_has_is_refused_though_the_files_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = split(tmp_path)
    for part, value in (("files", ["stacks/b.yaml", "stacks/a.yaml"]), ("gate", {"armed": False})):
        with pytest.raises(settings.ConfigError) as error:
            of_the_engine(monkeypatch, path, **{part: value})
        assert str(error.value).startswith(
            f"gpu-tenancy:{part}: the engine has {json.dumps(value)}, but Pulumi.x.yaml has "
        )
        assert str(error.value).endswith(
            "; only Pulumi.x.yaml may have this key: remove it from the --config-file, the environment or the "
            "Pulumi.yaml"
        )


def test_an_entry_is_known_with_its_file(tmp_path: Path) -> None:
    _, parts = settings.declared(split(tmp_path))
    assert parts.shown(("tenants", "frigate")) == "stacks/a.yaml"
    assert parts.shown(("residents", [*raw()["residents"]][2], "gpumem_mib")) == "stacks/b.yaml"
    assert (parts.shown(("pools", "t4")), parts.shown(("residents", "new"))) == ("", "")
    assert parts.shown(("residents",)) == "stacks/a.yaml"


def test_all_errors_at_once_each_with_its_file(tmp_path: Path) -> None:
    path = split(tmp_path)
    (tmp_path / "stacks" / "c.yaml").write_text(
        "residents:\n  new: {tenant: nobody, pool: t4, gpumem_mib: 0}\n  old: {tenant: tts, gpumem_mib: 5}\n"
        "tenant: {}\n"
    )
    path.write_text(path.read_text().replace('"interval_seconds"', '"interval_second"', 1))
    lines = refused(path)
    assert [line.partition(" (got")[0].partition(";")[0] for line in lines if "c.yaml" in line] == [
        "stacks/c.yaml: residents.new.gpumem_mib: must be at least 1",
        "stacks/c.yaml: residents.old.pool: is missing",
        "stacks/c.yaml: tenant: unknown key",
        "stacks/c.yaml: residents.new.tenant: 'nobody' is no key of tenants",
    ]
    assert [line for line in lines if line.startswith("gpu-tenancy:") and "interval_second: unknown key" in line]


def test_no_two_files_have_the_same_entry(tmp_path: Path) -> None:
    path = split(tmp_path)
    (tmp_path / "stacks" / "c.yaml").write_text("tenants: {new: {}}\n")
    (tmp_path / "stacks" / "d.yaml").write_text("tenants:\n  new: {}\ngate: {armed: true}\n")
    assert refused(path) == [
        "stacks/d.yaml: tenants.new: is in stacks/c.yaml as well; remove one",
        "stacks/d.yaml: gate: is in Pulumi.x.yaml as well; remove one",
    ]


OUTSIDE = ("/etc/hosts", "../x.yaml", "stacks/../../x.yaml", "..", "a\\b.yaml", "", "a\nb.yaml")
LINK = "is a link that leads out of the project's folder"
BAD_PATHS = {
    "none.yaml": "'none.yaml' is no .yaml file",
    "plain.txt": "'plain.txt' is no .yaml file",
    "empty": "'empty' has no .yaml file in it; write one, or remove this",
    "yml": "'yml/a.yml' is no .yaml file",
    "deep": "'deep/er' is no .yaml file",
    "out.yaml": f"'out.yaml' {LINK}",
    "links": f"'links/out.yaml' {LINK}",
    "gone.yaml": f"'gone.yaml' {LINK}",
    "round.yaml": "'round.yaml' is no .yaml file",
    "stacks/a.yaml": "'stacks' has the file of 'stacks/a.yaml' already; remove one",
    "again.yaml": "'stacks' has the file of 'again.yaml' already; remove one",
}


def test_files_are_read_from_inside_the_project_alone(tmp_path: Path) -> None:
    outside, project = tmp_path / "outside.yaml", tmp_path / "project"
    outside.write_text("tenants: {leaked: {}}")
    for folder in ("empty", "yml", "deep/er", "links"):
        (project / folder).mkdir(parents=True)
    (project / "plain.txt").write_text("tenants: {}")
    (project / "yml" / "a.yml").write_text("tenants: {}")
    for link, target in {
        "out.yaml": outside,
        "links/out.yaml": outside,
        "gone.yaml": tmp_path / "nowhere.yaml",
        "round.yaml": project / "round.yaml",
        "again.yaml": project / "stacks" / "b.yaml",
    }.items():
        (project / link).symlink_to(target)
    split(project)
    path = write(project, files=["stacks", *BAD_PATHS, *OUTSIDE])
    within = "must be a path within the project's folder, without .., such as stacks.d/prod"
    assert refused(path) == [
        *(f"gpu-tenancy:files: {text}" for text in BAD_PATHS.values()),
        *(f"gpu-tenancy:files.{n}: {within} (got {name!r})" for n, name in enumerate(OUTSIDE, 1 + len(BAD_PATHS))),
    ]


BAD_FILES = {
    "config: {tenants: {}}": "s.yaml: has the key config; write what is under it without it",
    "- a": "s.yaml: has no map of parts such as tenants; add it, or remove the file",
    "": "s.yaml: has no map of parts such as tenants; add it, or remove the file",
    "tenants: {": "s.yaml:1:11: ",
    "kubernetes:context: x": "s.yaml: kubernetes:context: is not read here; write it into Pulumi.x.yaml",
    "files: [s.yaml]": "s.yaml: files: stands in Pulumi.x.yaml alone; remove it",
    "tenants:": "s.yaml: tenants: is in Pulumi.x.yaml as well; remove one",
    "alerts: {labels: {secure: v1:abc}}": (
        "s.yaml: alerts: is encrypted, but nothing here is secret; write it plainly"
    ),
    "tenants: []": "s.yaml: tenants: is in Pulumi.x.yaml as well; remove one",
    "tenants: {a: {}, a: {}}": "s.yaml:1:18: a is there twice; remove one",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_wrong_file_is_one_line_with_its_place(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, files=["s.yaml"], out=(), s=text)
    (line,) = refused(path)
    assert line.startswith(BAD_FILES[text])
    assert "abc" not in line


@pytest.mark.no_cover
def test_thousands_of_errors_are_said_soon_and_the_first_hundred(tmp_path: Path) -> None:
    seats = "".join(f"  r-{number}: {{tenant: t-{number}, pool: t5, gpumem_mib: x}}\n" for number in range(1000))
    tenants = "".join(f"  team-{number}: {{}}\n" for number in range(1000))
    texts = dict.fromkeys(("s__0", "s__1"), f"residents:\n{seats}tenants:\n{tenants}")
    path = write(tmp_path, files=["s"], out=(), **texts)
    began = time.process_time()
    lines = refused(path)
    assert time.process_time() - began < 3
    assert len(lines) == 101
    assert lines[-1] == "and 4900 more"
