"""Tests that a folder of manifests gives a stack file without a cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpumem import checkout, cli
from gpumem.init.command import report_of_folder
from gpumem.init.manifests import FolderError

GPU = {"limits": {"nvidia.com/gpu": 1}}
APP_TEMPLATE = """
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: plex}
spec:
  chartRef: {kind: OCIRepository, name: app-template}
  values:
    controllers:
      plex:
        pod: {runtimeClassName: nvidia}
        containers: {app: {resources: {limits: {nvidia.com/gpu: 1, memory: 4Gi}}}}
    persistence: {config: {existingClaim: plex}}
"""
OLLAMA = """
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: ollama, namespace: argocd}
spec:
  destination: {namespace: ollama}
  source:
    chart: ollama
    helm:
      values: |
        ollama: {gpu: {enabled: true, type: nvidia, number: 1}}
        runtimeClassName: nvidia
"""
SLICED = """
apiVersion: v1
kind: ConfigMap
metadata: {name: device-plugin}
data:
  any: |
    version: v1
    sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 8}]}}
"""


def deployment(name: str, replicas: int = 1, **pod: Any) -> str:
    spec = {"containers": [{"name": "main", "resources": GPU}], **pod}
    made = {
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": {"spec": spec}},
    }
    return yaml.safe_dump({"apiVersion": "apps/v1", **made})


def proposed(tmp_path: Path, files: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    for name, text in files.items():
        path = tmp_path / "repo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    report_of_folder(tmp_path / "repo", "lab", tmp_path, overwrite=True)
    text = (tmp_path / "Pulumi.lab.yaml").read_text()
    assert checkout.refusals_of_text(text) == ()
    config = yaml.safe_load(text)["config"]
    return {key.removeprefix("gpu-tenancy:"): value for key, value in config.items()}, text


def test_flux_argo_cd_and_plain_manifests_become_tenants_and_seats(tmp_path: Path) -> None:
    found, text = proposed(
        tmp_path,
        {
            "apps/media/kustomization.yaml": "namespace: media\nresources: [plex]\n",
            "apps/media/plex/helmrelease.yaml": APP_TEMPLATE,
            "argocd/ollama.yaml": OLLAMA,
            "plain/all.yaml": deployment("whisper") + "---\n" + deployment("web").replace("nvidia.com/gpu", "cpu"),
            "chart/templates/broken.yaml": "{{- if .Values.x }}\n",
            "gpu/config.yaml": SLICED,
        },
    )
    seats = {name: (seat["tenant"], seat["pool"]) for name, seat in found["residents"].items()}
    assert seats == {"ollama": ("ollama", "gpu"), "plex": ("media", "gpu"), "whisper": ("default", "gpu")}
    assert found["pools"]["gpu"]["assumed"] is True
    assert "time-slicing" in text
    assert "Proposed from the manifests in repo, which show no node and no card." in text
    assert "1 files are no plain YAML, such as chart/templates/broken.yaml" in text


def test_each_node_selector_stands_for_a_node_of_its_card(tmp_path: Path) -> None:
    l4, t4 = ({"nvidia.com/gpu.product": product} for product in ("NVIDIA-L4", "Tesla-T4"))
    files = {"a.yaml": deployment("a", nodeSelector=l4), "b.yaml": deployment("b", nodeSelector=t4)}
    found, _ = proposed(tmp_path, {**files, "c.yaml": deployment("c"), "d.yaml": SLICED})
    pools = {name: (pool["node_selector"], pool["memory_mib"]) for name, pool in found["pools"].items()}
    assert pools == {"t4": (t4, 15360), "l4": (l4, 23034)}
    assert {name: seat["pool"] for name, seat in found["residents"].items()} == {"a": "l4", "b": "t4", "c": "l4"}


def test_selectors_that_may_choose_one_node_become_names_of_nodes(tmp_path: Path) -> None:
    files = {
        "a.yaml": deployment("a", nodeSelector={"fast": "yes"}),
        "b.yaml": deployment("b", nodeSelector={"big": "1"}),
    }
    found, _ = proposed(tmp_path, files)
    keys = {key for pool in found["pools"].values() for key in pool["node_selector"]}
    assert keys == {"kubernetes.io/hostname"}


def test_namespaces_come_from_flux_and_from_the_object(tmp_path: Path) -> None:
    flux = {"metadata": {"name": "ai"}, "spec": {"path": "./apps/ai", "targetNamespace": "ai"}}
    flux |= {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization"}
    own = deployment("own").replace("name: own", "name: own\n  namespace: mine")
    files = {"flux.yaml": yaml.safe_dump(flux), "apps/ai/x.yaml": deployment("x"), "y.yaml": own}
    found, _ = proposed(tmp_path, files)
    assert {name: seat["tenant"] for name, seat in found["residents"].items()} == {"x": "ai", "own": "mine"}


def test_a_workload_of_no_replica_is_named(tmp_path: Path) -> None:
    _, text = proposed(tmp_path, {"a.yaml": deployment("a"), "b.yaml": deployment("parked", 0)})
    assert "Deployment default/parked (container main asks for nvidia.com/gpu) is scaled to 0" in text


def test_a_folder_without_a_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"no workload in .* reaches a GPU"):
        proposed(tmp_path, {"a.yaml": "kind: ConfigMap\nmetadata: {name: x}\n"})


def test_the_flag_needs_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text(deployment("a"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "--stack", "lab", "--from-git", "."], {}) == 0
    assert (tmp_path / "Pulumi.lab.yaml").is_file()


@pytest.mark.parametrize(
    "text",
    [
        'kind: List\nmetadata: {resourceVersion: ""}\nitems: [{kind: Pod, metadata: {name: p}}]\n',
        "kind: FooList\nitems: 5\n",
        "kind: CRD\nmetadata: {name: c}\nspec: {description: The number of replicas and the timestamps of each}\n",
        'kind: Deployment\nmetadata: {name: d}\nspec: "{{ toYaml .Values.spec }}"\n',
        'kind: Namespace\nmetadata: {name: n, labels: "{{ include foo }}"}\n',
        'kind: HorizontalPodAutoscaler\nmetadata: {name: h}\nspec: "{{ x }}"\n',
        "kind: RuntimeClass\nmetadata: {name: r}\nhandler: 5\n",
        'kind: Deployment\nmetadata: {name: d, namespace: "{{ .Release.Namespace }}"}\n',
    ],
)
def test_a_template_or_an_odd_file_beside_a_workload_is_left_out(tmp_path: Path, text: str) -> None:
    found, _ = proposed(tmp_path, {"media/release.yaml": APP_TEMPLATE, "odd.yaml": text})
    assert [*found["tenants"]] == ["default"]
