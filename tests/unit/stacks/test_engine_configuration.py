"""Tests that the settings from Pulumi's engine equal the settings in the stack file."""

import json
from pathlib import Path

import pulumi
import pytest
import yaml
from pulumi_kubernetes import ProviderArgs

from components.agents.watchdog import WatchdogSpec
from stacks import provider, settings
from tests.support.paths import ROOT
from tests.support.prod import PROD, as_the_engine, of_the_engine, put, raw, refusal


def test_the_engine_hands_over_json_and_an_empty_part_is_a_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = {**as_the_engine(raw()), "gpu-tenancy:watchdog": "{}", "kubernetes:context": "1"}
    assert of_the_engine(monkeypatch, config, tmp_path).watchdog == WatchdogSpec()


def test_no_key_has_a_default_that_the_engine_would_add() -> None:
    """With a declared default, `watchdog: {}` and no watchdog would be the same to the program."""
    declared = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    assert [*declared] == ["kubernetes:enableConfigMapMutable"]


def test_a_scalar_from_the_engine_is_refused_as_no_map(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(settings.ConfigError) as refused:
        of_the_engine(monkeypatch, {**as_the_engine(raw()), "gpu-tenancy:alerts": "all of them"}, tmp_path)
    assert str(refused.value) == ("gpu-tenancy:alerts: must be a map of keys (got 'all of them')")


FOREIGN = ("gpu_tenancy:residents", "GPU-TENANCY:gate", "gpu-tenancy:config:gate", ":residents", "aws:region")
INSTEAD = "unknown key; what is read here begins with one of gpu-tenancy, kubernetes, pulumi; rename or remove it"


@pytest.mark.parametrize("name", FOREIGN)
def test_a_key_that_is_neither_ours_nor_a_providers_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(PROD.read_text().replace("config:\n", f"config:\n  {name}: {{}}\n  kubernetes:context: x\n"))
    with pytest.raises(settings.ConfigError) as refused:
        settings.load_file(path)
    assert str(refused.value) == f"{name}: {INSTEAD}"
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(settings.ConfigError) as refused:
        of_the_engine(monkeypatch, {**as_the_engine(raw()), name: "{}"}, tmp_path / "elsewhere")
    assert str(refused.value) == f"{name}: {INSTEAD}"


def test_what_the_engine_has_is_what_the_stack_file_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(PROD.read_text())
    assert of_the_engine(monkeypatch, as_the_engine(raw()), tmp_path) == settings.load_file(PROD)
    with pytest.raises(settings.ConfigError) as refused:
        of_the_engine(monkeypatch, {**as_the_engine(raw()), "gpu-tenancy:gate": '{"armed": false}'}, tmp_path)
    assert str(refused.value) == (
        'gpu-tenancy:gate: the engine has {"armed": false}, but Pulumi.x.yaml has {"armed": true}; '
        "only Pulumi.x.yaml may have this key: remove it from the --config-file, the environment or the Pulumi.yaml"
    )


@pytest.mark.parametrize("part", ["watchdog", "alerts", "pools"])
def test_a_part_without_a_value_is_refused_by_chart_and_engine_alike(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"gpu-tenancy:{part}: has no value; write one, or remove the key" in refusal(put(part, None))
    with pytest.raises(settings.ConfigError, match=f"gpu-tenancy:{part}: has no value; write one, or remove the key"):
        of_the_engine(monkeypatch, {**as_the_engine(raw()), f"gpu-tenancy:{part}": ""}, tmp_path)


# These keys of the Kubernetes provider do not affect PriorityClasses.
NOT_OF_CLASSES = {
    "enableConfigMapMutable",
    "enableSecretMutable",
    "enableServerSideApply",
    "helmReleaseSettings",
    "namespace",
    "suppressDeprecationWarnings",
    "suppressHelmHookWarnings",
}


def test_every_key_of_the_provider_is_followed_or_known_to_be_of_no_use() -> None:
    words = [name.split("_") for name, value in vars(ProviderArgs).items() if isinstance(value, property)]
    keys = {first + "".join(map(str.title, rest)) for first, *rest in words}
    assert keys == {*provider.REACHES, *NOT_OF_CLASSES}


def test_a_provider_that_reaches_the_cluster_as_the_stacks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"kubernetes:context": "lab", "kubernetes:namespace": "x", "gpu-tenancy:context": "other"}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(config))
    assert provider.provider() == {"context": "lab"}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({"kubernetes:kubeconfig": "{}"}))
    (kubeconfig,) = provider.provider().values()
    assert isinstance(kubeconfig, pulumi.Output)  # a secret
