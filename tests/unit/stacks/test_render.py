"""Tests the folders and files of a stack as plain manifests."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks import render
from stacks.engine import Engine, EngineError
from stacks.preview.events import Op, Resource
from stacks.render import Placed
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "howto" / "use-flux-or-argo.md"
URN = "urn:pulumi:prod::gpu-tenancy::"
ENGINE = Engine(Path(), "prod", {})


def made(component: str, token: str, manifest: dict[str, Any]) -> Resource:
    urn = f"{URN}gputenancy:index:{component}${token}::x"
    return Resource(urn=urn, parent="", op=Op.CREATE, inputs=manifest)


def manifest(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **more}}


NAMESPACE = made("Tenant", "kubernetes:core/v1:Namespace", manifest("Namespace", "chat"))
QUOTA = made("Tenant", "kubernetes:core/v1:ResourceQuota", manifest("ResourceQuota", "seats", namespace="chat"))
AGENT = made("Watchdog", "kubernetes:batch/v1:CronJob", manifest("CronJob", "watchdog", namespace="system"))
POLICY = made("Admission", "kubernetes:x/v1:ValidatingAdmissionPolicy", manifest("ValidatingAdmissionPolicy", "p"))
COMPONENT = Resource(urn=f"{URN}gputenancy:index:Tenant::chat", parent="", op=Op.CREATE)


def test_an_object_is_in_a_folder_after_all_that_it_needs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    render.write("prod", render.placed(ENGINE, [POLICY, AGENT, COMPONENT, QUOTA, NAMESPACE]), out)
    assert sorted(path.relative_to(out).as_posix() for path in out.glob("*/*")) == [
        "0-never-delete/Kustomization",
        "0-never-delete/namespace_chat.kept",
        "4-budgets/resourcequota_chat_seats.yaml",
        "5-agents/cronjob_system_watchdog.yaml",
        "6-admission/validatingadmissionpolicy_p.yaml",
        "flux/kustomizations.yaml",
    ]


def test_what_was_there_before_the_stack_is_in_the_folder_that_no_removal_names(tmp_path: Path) -> None:
    home = made("Tenant", "kubernetes:core/v1:NamespacePatch", manifest("Namespace", "immich"))
    existing = {**manifest("PriorityClass", "gpu"), "apiVersion": "scheduling.k8s.io/v1"}
    priority = made("Priorities", "kubernetes:scheduling.k8s.io/v1:PriorityClassPatch", existing)
    render.write("prod", render.placed(ENGINE, [home, priority, NAMESPACE, QUOTA]), tmp_path)
    ours = {Path(name).parts[0] for name in files(tmp_path) if "quota" in name}
    assert ours == {"4-budgets"}
    kept = {name: text for name, text in files(tmp_path).items() if name.endswith(".kept")}
    listed = yaml.safe_load((tmp_path / "0-never-delete" / "Kustomization").read_text())["resources"]
    assert {f"0-never-delete/{each}" for each in listed} == kept.keys()
    assert {yaml.safe_load(text)["metadata"]["name"] for text in kept.values()} == {"immich", "gpu", "chat"}
    for text in kept.values():
        assert render.KEPT.items() <= yaml.safe_load(text)["metadata"]["annotations"].items()


def test_no_folder_has_a_namespace_for_a_tool_that_reads_manifests(tmp_path: Path) -> None:
    """`kubectl delete -R -f` reads these files (k8s.io/cli-runtime, pkg/resource: FileExtensions)."""
    home = made("Tenant", "kubernetes:core/v1:NamespacePatch", manifest("Namespace", "immich"))
    render.write("prod", render.placed(ENGINE, [home, NAMESPACE, QUOTA]), tmp_path)
    read = [path for suffix in ("json", "yaml", "yml") for path in tmp_path.rglob(f"*.{suffix}")]
    assert {each["kind"] for path in read for each in yaml.safe_load_all(path.read_text())} == {
        "Kustomization",
        "ResourceQuota",
    }


def test_argo_and_flux_read_the_order_and_keep_namespaces(tmp_path: Path) -> None:
    render.write("prod", render.placed(ENGINE, [AGENT, NAMESPACE]), tmp_path)
    namespace = yaml.safe_load((tmp_path / "0-never-delete" / "namespace_chat.kept").read_text())
    assert namespace["metadata"]["annotations"] == {"argocd.argoproj.io/sync-wave": "0", **render.KEPT}
    agent = yaml.safe_load((tmp_path / "5-agents" / "cronjob_system_watchdog.yaml").read_text())
    assert agent["metadata"]["annotations"] == {"argocd.argoproj.io/sync-wave": "5"}
    first, second = yaml.safe_load_all((tmp_path / "flux" / "kustomizations.yaml").read_text())
    assert "dependsOn" not in first["spec"]
    assert second["spec"]["dependsOn"] == [{"name": first["metadata"]["name"]}]
    assert (tmp_path / second["spec"]["path"]).is_dir()


def test_a_second_run_removes_what_the_stack_no_longer_has(tmp_path: Path) -> None:
    render.write("prod", render.placed(ENGINE, [AGENT, NAMESPACE]), tmp_path)
    render.write("prod", render.placed(ENGINE, [NAMESPACE]), tmp_path)
    assert not (tmp_path / "5-agents").exists()


def files(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_render_removes_only_files_that_its_own_last_run_listed(tmp_path: Path) -> None:
    render.write("prod", render.placed(ENGINE, [AGENT, NAMESPACE]), tmp_path)
    mine = {".git/HEAD": "main", "apps/immich.yaml": "mine", "5-agents/mine.yaml": "mine", "5-agents/sub/x": "mine"}
    for name, text in mine.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    render.write("prod", render.placed(ENGINE, [NAMESPACE]), tmp_path)
    kept = {"0-never-delete/Kustomization", "0-never-delete/namespace_chat.kept"}
    assert files(tmp_path).keys() == mine.keys() | kept | {".rendered-by-gpu-tenancy-prod", "flux/kustomizations.yaml"}
    assert mine.items() <= files(tmp_path).items()


@pytest.mark.parametrize("line", ["../precious", "0-never-delete/../../x", "apps/precious", "/etc/precious", ".."])
def test_a_line_of_the_index_that_names_another_place_removes_nothing(line: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    render.write("prod", render.placed(ENGINE, [NAMESPACE]), out)
    (out / "apps").mkdir()
    for place in (tmp_path, out / "apps"):
        (place / "precious").write_text("mine")
    (out / ".rendered-by-gpu-tenancy-prod").write_text(
        f"{line}\n0-never-delete/Kustomization\n0-never-delete/namespace_chat.kept\nflux/kustomizations.yaml\n"
    )
    render.write("prod", render.placed(ENGINE, [NAMESPACE]), out)
    assert (tmp_path / "precious").exists()
    assert (out / "apps" / "precious").exists()


def test_the_uid_of_the_only_cluster_comes_before_everything_else(tmp_path: Path) -> None:
    render.write("prod", render.placed(ENGINE, [NAMESPACE, QUOTA], "1-2"), tmp_path)
    first = min(name for name in files(tmp_path) if name.endswith(".yaml"))
    assert first == "0-cluster/namespace_kube-system.yaml"
    metadata = yaml.safe_load(files(tmp_path)[first])["metadata"]
    assert (metadata["name"], metadata["uid"]) == ("kube-system", "1-2")
    assert metadata["annotations"] == {"argocd.argoproj.io/sync-wave": "-1", **render.KEPT}
    _, *later = yaml.safe_load_all((tmp_path / "flux" / "kustomizations.yaml").read_text())
    assert later[0]["spec"]["dependsOn"] == [{"name": "gpu-tenancy-prod-0-cluster"}]
    (applied,) = re.findall(r"## kubectl\n\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert applied.startswith("(set -e; for folder in manifests/[0-9]-*; do")


def test_a_file_that_render_did_not_write_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "0-never-delete").mkdir()
    (tmp_path / "0-never-delete" / "namespace_chat.kept").write_text("mine")
    with pytest.raises(EngineError, match=r"and would replace: 0-never-delete/namespace_chat\.kept; move"):
        render.write("prod", [Placed(render.WAVES.index("never-delete"), NAMESPACE.inputs)], tmp_path)
    assert files(tmp_path) == {"0-never-delete/namespace_chat.kept": "mine"}


def test_a_link_in_the_place_of_a_file_is_not_written_through(tmp_path: Path) -> None:
    out, precious = tmp_path / "out", tmp_path / "precious"
    render.write("prod", [Placed(render.WAVES.index("never-delete"), NAMESPACE.inputs)], out)
    precious.write_text("mine")
    (out / "0-never-delete" / "namespace_chat.kept").unlink()
    (out / "0-never-delete" / "namespace_chat.kept").symlink_to(precious)
    with pytest.raises(EngineError, match=r"and would replace: 0-never-delete/namespace_chat\.kept; move"):
        render.write("prod", [Placed(render.WAVES.index("never-delete"), NAMESPACE.inputs)], out)
    assert precious.read_text() == "mine"


def test_another_stack_replaces_and_removes_no_file(tmp_path: Path) -> None:
    """With Flux, whatever left the folder would leave the cluster."""
    render.write("prod", render.placed(ENGINE, [AGENT, NAMESPACE]), tmp_path)
    before = files(tmp_path)
    with pytest.raises(EngineError, match=r"would replace: 0-never-delete/Kustomization, 0-never-delete/name"):
        render.write("lab", render.placed(ENGINE, [NAMESPACE]), tmp_path)
    assert files(tmp_path) == before


def test_two_objects_whose_names_join_to_one_have_two_files() -> None:
    queues = [manifest("LocalQueue", "a-gpu", namespace="team"), manifest("LocalQueue", "gpu", namespace="team-a")]
    roles = [manifest("Role", "a:b"), manifest("Role", "a-b")]
    assert len({Placed(4, each).file_name for each in (*queues, *roles)}) == 4


def test_a_value_that_only_an_update_knows_is_refused() -> None:
    unknown = made("Tenant", "kubernetes:core/v1:ConfigMap", manifest("ConfigMap", "c"))
    unknown.inputs["data"] = {"uid": "04da6b54-80e4-46f7-96ec-b56ff0331ba9"}  # type: ignore[index]
    with pytest.raises(EngineError, match=r"configmap_c\.yaml: has a value that only an update knows"):
        render.placed(ENGINE, [unknown])


def test_two_kinds_with_one_name_have_two_files() -> None:
    kueues = {**manifest("Workload", "a"), "apiVersion": "kueue.x-k8s.io/v1beta2"}
    assert Placed(0, kueues).file_name != Placed(0, manifest("Workload", "a")).file_name
