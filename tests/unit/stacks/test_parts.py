"""Parts in files of their own: read the same as in the stack file, from inside the project alone, each entry once."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from components.agents.reconcile import ledger_config_map
from stacks import limits, settings
from stacks.__main__ import main
from tenancy.names import LEDGER_KEY, PROJECT
from tests.support.prod import PROD, raw


def write(folder: Path, *, files: Any, out: tuple[str, ...] = ("tenants", "residents"), **texts: str) -> Path:
    """Prod without the parts `out`, and with the key files; `texts` are files by their paths, __ for / and .yaml."""
    config = {name: value for name, value in raw().items() if name not in out}
    path = folder / "Pulumi.x.yaml"
    path.write_text(json.dumps({"config": {f"{PROJECT}:{name}": v for name, v in {**config, "files": files}.items()}}))
    for name, text in texts.items():
        file = folder / f"{name.replace('__', '/')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


def split(folder: Path) -> Path:
    """Prod, of which tenants and residents stand in two files of a folder, residents in both."""
    seats = list(raw()["residents"].items())
    texts = {
        "stacks__a": json.dumps({"tenants": raw()["tenants"], "gpu-tenancy:residents": dict(seats[:2])}),
        "stacks__b": json.dumps({"residents": dict(seats[2:])}),
    }
    return write(folder, files=["stacks"], **texts)


def refused(path: Path) -> list[str]:
    with pytest.raises(settings.ConfigError) as error:
        settings.load_file(path)
    return str(error.value).replace(f"{path.parent}/", "").splitlines()


def of_the_engine(monkeypatch: pytest.MonkeyPatch, path: Path, **more: Any) -> settings.StackSettings:
    """What the program reads: the engine hands on what stands in the stack file, and defaults."""
    config = json.loads(path.read_text())["config"] | {f"{PROJECT}:{name}": value for name, value in more.items()}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({name: json.dumps(value) for name, value in config.items()}))
    monkeypatch.setattr("pulumi.get_stack", lambda: "x")
    monkeypatch.chdir(path.parent)
    return settings.load()


def test_prod_in_files_is_prod_to_chart_and_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, prod = split(tmp_path), settings.load_file(PROD)
    declared = settings.load_file(path)
    assert declared.model_copy(update={"files": []}) == prod
    assert declared.ledger() == prod.ledger()
    assert of_the_engine(monkeypatch, path) == declared
    assert of_the_engine(monkeypatch, path, tenants={}, residents={}) == declared  # the defaults of Pulumi.yaml
    assert main(["chart", "--stack", "x"], tmp_path) == 0
    in_files = capsys.readouterr().out
    assert main(["chart", "--stack", "prod"], PROD.parent) == 0
    assert in_files == capsys.readouterr().out


@pytest.mark.no_cover
def test_more_than_the_engine_takes_is_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In files there is no limit; in the stack file test_limits has it."""
    names = [f"tenant-{number:05}" for number in range(2000)]
    tenants = "tenants:\n" + "".join(f"  {name}: {{}}\n" for name in names)
    seats = "".join(f"  {name}: {{tenant: {name}, pool: t4, gpumem_mib: 3000}}\n" for name in names)
    kept = {name: json.dumps({name: raw()[name]}) for name in ("tenants", "residents")}
    texts = {"s__0": kept["tenants"], "s__1": kept["residents"], "s__2": tenants, "s__3": f"residents:\n{seats}"}
    path = write(tmp_path, files=["s"], **texts)
    declared = settings.load_file(path)
    assert len(tenants + seats) > limits.MOST_BYTES
    assert len(declared.tenants) == 2000 + len(raw()["tenants"])
    assert of_the_engine(monkeypatch, path) == declared


def test_more_than_a_config_map_takes_is_refused_with_the_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server would say so of the ledger, halfway through a rollout."""
    path = split(tmp_path)
    ledger = settings.load_file(path).ledger()
    size = len(ledger_config_map(ledger, "", advertised=True)["data"][LEDGER_KEY].encode())
    monkeypatch.setattr(limits, "MOST_LEDGER_BYTES", size)
    assert settings.load_file(path).ledger() == ledger
    monkeypatch.setattr(limits, "MOST_LEDGER_BYTES", size - 1)
    (line,) = refused(path)
    assert line.startswith(f"Pulumi.x.yaml: the ledger takes {size} bytes, and a ConfigMap of Kubernetes {size - 1} at")


def test_what_only_the_engine_has_is_refused_though_the_files_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = split(tmp_path)
    for part, value in (("files", ["stacks/b.yaml", "stacks/a.yaml"]), ("gate", {"armed": False})):
        with pytest.raises(settings.ConfigError) as error:
            of_the_engine(monkeypatch, path, **{part: value})
        assert str(error.value) == f"gpu-tenancy:{part}: Pulumi.x.yaml says otherwise than the engine; write it there"


def test_any_part_may_stand_in_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, files=["all.yaml"], out=tuple(raw()), all=json.dumps(raw()))
    assert settings.load_file(path).model_copy(update={"files": []}) == settings.load_file(PROD)


def test_an_entry_is_known_with_its_file(tmp_path: Path) -> None:
    _, parts = settings.declared(split(tmp_path))
    assert parts.shown(("tenants", "frigate")) == "stacks/a.yaml"
    assert parts.shown(("residents", [*raw()["residents"]][2], "gpumem_mib")) == "stacks/b.yaml"
    assert (parts.shown(("pools", "t4")), parts.shown(("residents", "new"))) == ("", "")
    assert parts.shown(("residents",)) == "stacks/a.yaml"


def test_queues_may_be_split_by_their_entries(tmp_path: Path) -> None:
    queues = raw()["queues"]
    texts = {f"q-{name.replace('_', '')}": json.dumps({"queues": {name: part}}) for name, part in queues.items()}
    path = write(tmp_path, files=[f"{name}.yaml" for name in texts], out=("queues",), **texts)
    assert settings.load_file(path).queues == settings.load_file(PROD).queues


def test_all_errors_at_once_each_with_its_file_line_and_column(tmp_path: Path) -> None:
    path = split(tmp_path)
    (tmp_path / "stacks" / "c.yaml").write_text(
        "residents:\n  new: {tenant: nobody, pool: t4, gpumem_mib: 0}\n  old:\n    tenant: tts\n    gpumem_mib: 05\n"
        "tenant: {}\n"
    )
    path.write_text(path.read_text().replace('"interval_seconds"', '"interval_second"', 1))
    lines = refused(path)
    assert [line.partition(" (got")[0].partition(";")[0] for line in lines if "c.yaml" in line] == [
        "stacks/c.yaml:5:17: residents.old.gpumem_mib: 05 is octal, 5 to the engine",
        "stacks/c.yaml:2:35: residents.new.gpumem_mib: must be at least 1",
        "stacks/c.yaml:3:3: residents.old.pool: is missing",
        "stacks/c.yaml:6:1: tenant: unknown key",
        "stacks/c.yaml:2:9: residents.new.tenant: 'nobody' is no key of tenants",
    ]
    assert [line for line in lines if line.startswith("gpu-tenancy:") and "interval_second: unknown key" in line]


def test_no_two_files_have_the_same_entry(tmp_path: Path) -> None:
    path = split(tmp_path)
    (tmp_path / "stacks" / "c.yaml").write_text("tenants: {new: {}}\n")
    (tmp_path / "stacks" / "d.yaml").write_text("tenants:\n  new: {}\ngate: {armed: true}\nwatchdog: {}\n")
    assert refused(path) == [
        "stacks/d.yaml:2:3: tenants.new: is in stacks/c.yaml:1:11 as well; remove one",
        "stacks/d.yaml:3:1: gate: is in Pulumi.x.yaml as well; remove one",
    ]


OUTSIDE = ("/etc/hosts", "../x.yaml", "stacks/../../x.yaml", "..", "a\\b.yaml", "", "a\nb.yaml")
BAD_PATHS = {
    "none.yaml": "'none.yaml' is not there; write it, or remove this",
    "none": "'none' is not there; write it, or remove this",
    "plain.txt": "'plain.txt' is neither a .yaml file nor a folder of them",
    "empty": "has no .yaml file in it; write one, or remove this",
    "yml": "has 'a.yml' in it, which is not read: a folder's .yaml files are; rename it, or name it under files itself",
    "deep": "has 'er' in it, which is not read: a folder's .yaml files are; rename it, or name it under files itself",
    "out.yaml": "'out.yaml' is a link that leads out of the project's folder; put the file there",
    "links": "'links/out.yaml' is a link that leads out of the project's folder; put the file there",
    "gone.yaml": "'gone.yaml' is a link that leads out of the project's folder; put the file there",
    "round.yaml": "'round.yaml' is a link that leads out of the project's folder; put the file there",
    "stacks/a.yaml": "'stacks' has this file already; remove one",
    "again.yaml": "'stacks' has this file already; remove one",
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
    within = dict.fromkeys(OUTSIDE, "must be a path within the project's folder, without .., such as stacks.d/prod")
    assert refused(path) == [
        f"gpu-tenancy:files.{index}: {text} (got {name!r})"
        for index, (name, text) in enumerate((BAD_PATHS | within).items(), 1)
    ]


def test_a_link_within_the_project_is_followed(tmp_path: Path) -> None:
    path = split(tmp_path)
    (tmp_path / "same").symlink_to("stacks")
    path.write_text(path.read_text().replace('"stacks"', '"same"'))
    assert settings.load_file(path).ledger() == settings.load_file(PROD).ledger()


BAD_FILES = {
    "config: {tenants: {}}": "s.yaml: has the key config; write what is under it without it",
    "- a": "s.yaml: has no map of parts such as tenants; add it, or remove the file",
    "": "s.yaml: has no map of parts such as tenants; add it, or remove the file",
    "tenants: {": "s.yaml:1:11: ",
    "tenants: !!map {}": "s.yaml:1:10: tag:yaml.org,2002:map is a tag; write the value without it",
    "kubernetes:context: x": "s.yaml:1:1: kubernetes:context: is not read here; write it into Pulumi.x.yaml",
    "files: [s.yaml]": "s.yaml:1:1: files: stands in Pulumi.x.yaml alone; remove it",
    "tenants:": "s.yaml:1:1: tenants: has no value; write one, or remove the key",
    "alerts: {labels: {secure: v1:abc}}": (
        "s.yaml:1:1: alerts: is encrypted, but nothing here is secret; write it plainly"
    ),
    "tenants: []": "s.yaml:1:1: tenants: is in Pulumi.x.yaml as well; remove one",
    "tenants: {a: {}, a: {}}": "s.yaml:1:18: tenants.a: is there twice; remove one",
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_wrong_file_is_one_line_with_its_place(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, files=["s.yaml"], out=(), s=text)
    (line,) = refused(path)
    assert line.startswith(BAD_FILES[text])
    assert "abc" not in line


@pytest.mark.parametrize("files", ["stacks", {"a": 1}, [1], [None]])
def test_files_is_a_list_of_paths(files: Any, tmp_path: Path) -> None:
    lines = refused(write(tmp_path, files=files, out=()))
    assert len(lines) == 1
    assert lines[0].startswith("gpu-tenancy:files")


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
