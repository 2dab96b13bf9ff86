"""Writes a stack as plain manifests, for Flux, Argo CD or kubectl.

The manifests are the inputs that the program declares in a preview. The folders have numbers, and a folder needs
the objects of the folders before it.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stacks.engine import Engine, EngineError
from stacks.existing.objects import RELEASE_TYPE, is_patch_type
from stacks.preview.events import Events, Resource
from tenancy.names import CLUSTER_TYPE, EXEMPT_BY_NAME

# The folders in their order. The first one has kube-system with the uid of the cluster: the API server of another
# cluster refuses it, so that the tool applies nothing else. The second one has what a removal leaves: all namespaces,
# because people have objects in them, and the patches, because their objects were there before the stack. To a tool
# that reads whole folders, its files are no manifests: only its Kustomization names them.
WAVES = ("cluster", "never-delete", "priorities", "kueue", "queues", "budgets", "agents", "admission")
_CLUSTER, _NEVER_DELETE, _PRIORITIES, KUEUE, _QUEUES, _BUDGETS, _AGENTS, _ADMISSION = range(len(WAVES))
# The folder of each component's objects. Components that are not listed are agents.
_OF_COMPONENT = {
    "Admission": _ADMISSION,
    "Capacity": _BUDGETS,
    "Kueue": KUEUE,
    "LocalQueues": _BUDGETS,
    "Memory": _ADMISSION,
    "Priorities": _PRIORITIES,
    "Queues": _QUEUES,
    "System": _BUDGETS,
    "Tenant": _BUDGETS,
}
_ARGO_WAVE = "argocd.argoproj.io/sync-wave"
# With these annotations, a deployment tool does not delete an object either.
KEPT = {"argocd.argoproj.io/sync-options": "Prune=false,Delete=false", "kustomize.toolkit.fluxcd.io/prune": "disabled"}
# kubectl and Argo CD find the first file only if they look for a Kustomization, and the others never by themselves.
_KUSTOMIZATION, _KEPT_SUFFIX = "Kustomization", ".kept"
_FOR_PULUMI = "pulumi.com/"  # annotations that only Pulumi's provider reads
# The index of a stack lists the files of its last run, one path in each line. A run removes and replaces only these.
_INDEX = ".rendered-by-gpu-tenancy-"
# In the events of a preview, this text stands for a value that only the update knows (Pulumi, sdk/go/common/resource).
_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
_KUSTOMIZE = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
_CHART_PROGRAM = """import json
from pathlib import Path
from pulumi_kubernetes.helm.v3 import Chart, LocalChartOpts

given = json.loads(Path("release.json").read_text())
Chart(given["name"], LocalChartOpts(path=given["chart"], namespace=given["namespace"], values=given["values"]))
"""


@dataclass(frozen=True)
class Placed:
    """An object with its folder."""

    wave: int
    manifest: Mapping[str, Any]

    @property
    def file_name(self) -> str:
        metadata = self.manifest["metadata"]
        group = self.manifest["apiVersion"].rpartition("/")[0]
        kind = self.manifest["kind"] + (f".{group}" if "." in group and not group.endswith(".k8s.io") else "")
        parts = (kind.lower(), metadata.get("namespace", ""), metadata["name"])
        # No name in Kubernetes has an underscore, so two objects never have one file. Only names of RBAC have a colon.
        suffix = _KEPT_SUFFIX if self.wave == _NEVER_DELETE else ".yaml"
        return "_".join(part for part in parts if part).replace(":", "+") + suffix


def placed(engine: Engine, resources: Iterable[Resource], cluster: str | None = None) -> list[Placed]:
    """Returns all objects of a preview of a new stack, with the objects of Kueue's chart. Raises EngineError.

    `cluster` is the uid of kube-system in the only cluster that may accept the objects.
    """
    found = [*resources]
    objects = [Placed(_wave(each), each.inputs) for each in found if _is_an_object(each)]
    if cluster:
        metadata = {"name": EXEMPT_BY_NAME, "uid": cluster}
        objects.append(Placed(_CLUSTER, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    for release in (each for each in found if each.type == RELEASE_TYPE):
        objects += [Placed(KUEUE, each) for each in _of_the_chart(engine, release.inputs)]
    if unknown := [each.file_name for each in objects if _UNKNOWN in json.dumps(each.manifest)]:
        raise EngineError(f"{', '.join(unknown)}: has a value that only an update knows; use make up")
    return objects


def write(stack: str, objects: Sequence[Placed], out: Path) -> None:
    """Writes the manifests into `out`, and removes the files of the last run that the stack no longer has.

    Every other file stays, so `out` may be a repository. Raises EngineError.
    """
    waves = sorted({each.wave for each in objects})
    texts = {Path("flux", "kustomizations.yaml"): _flux(stack, waves)}
    texts |= {Path(folder_name(each.wave), each.file_name): _as_yaml(_annotated(each)) for each in objects}
    if kept := sorted(each.file_name for each in objects if each.wave == _NEVER_DELETE):
        texts[Path(folder_name(_NEVER_DELETE), _KUSTOMIZATION)] = _as_yaml({**_KUSTOMIZE, "resources": kept})
    index = out / f"{_INDEX}{stack}"
    try:
        before = _listed(index)
        if foreign := sorted(str(file) for file in texts if _is_foreign(out / file, is_listed=file in before)):
            raise EngineError(
                f"{out} has files that make render did not write and would replace: {', '.join(foreign)}; move them, "
                "or name another folder: OUT=dir"
            )
        out.mkdir(parents=True, exist_ok=True)
        # A run that is killed leaves no file that the next run does not know.
        _write_index(index, before | texts.keys())
        for file, text in texts.items():
            (out / file).parent.mkdir(exist_ok=True)
            (out / file).write_text(text, encoding="utf-8")
        for file in before - texts.keys():
            (out / file).unlink(missing_ok=True)
            with suppress(OSError):  # The folder has other files.
                (out / file).parent.rmdir()
        _write_index(index, texts.keys())
    except OSError as error:
        raise EngineError(f"{out} cannot be written: {error.strerror}; name another folder: OUT=dir") from None


def _is_foreign(file: Path, *, is_listed: bool) -> bool:
    """Returns True for a file of somebody else. A link in the place of a file leads to one."""
    return file.is_symlink() or (file.exists() and not is_listed)


def _listed(index: Path) -> set[Path]:
    """Returns the files that the last run has written. A line with another kind of path is ignored."""
    lines = index.read_text(encoding="utf-8").splitlines() if index.exists() else ()
    ours = {*map(folder_name, range(len(WAVES))), "flux"}
    return {file for file in map(Path, lines) if len(file.parts) == 2 and file.parts[0] in ours and file.name != ".."}


def _write_index(index: Path, files: Iterable[Path]) -> None:
    index.write_text("".join(f"{file.as_posix()}\n" for file in sorted(files)), encoding="utf-8")


def folder_name(wave: int) -> str:
    return f"{max(wave - 1, 0)}-{WAVES[wave]}"


def _is_an_object(resource: Resource) -> bool:
    kinds = resource.type.startswith("kubernetes:") and resource.type != RELEASE_TYPE
    is_cluster = resource.type == CLUSTER_TYPE and resource.inputs["metadata"]["name"] == EXEMPT_BY_NAME
    return kinds and {"apiVersion", "kind", "metadata"} <= resource.inputs.keys() and not is_cluster


def _wave(resource: Resource) -> int:
    if resource.inputs["kind"] == "Namespace" or is_patch_type(resource.type):
        return _NEVER_DELETE
    *_, types, _ = resource.urn.split("::", 3)
    components = (each.rpartition(":")[2] for each in types.split("$"))
    return next((_OF_COMPONENT[each] for each in components if each in _OF_COMPONENT), _AGENTS)


def _annotated(each: Placed) -> Mapping[str, Any]:
    metadata = each.manifest["metadata"]
    kept = KEPT if each.wave <= _NEVER_DELETE else {}
    own = {name: text for name, text in metadata.get("annotations", {}).items() if not name.startswith(_FOR_PULUMI)}
    annotations = {**own, _ARGO_WAVE: str(each.wave - 1), **kept}
    return {**each.manifest, "metadata": {**metadata, "annotations": annotations}}


def _flux(stack: str, waves: Sequence[int]) -> str:
    """Returns a Flux Kustomization for each folder. Each one waits for the one before it."""
    documents = []
    for before, wave in zip((None, *waves), waves, strict=False):
        depends = {} if before is None else {"dependsOn": [{"name": _flux_name(stack, before)}]}
        spec = {
            **depends,
            "interval": "10m",
            "path": f"./{folder_name(wave)}",
            "prune": True,
            "wait": True,
            "timeout": "10m",
            "sourceRef": {"kind": "GitRepository", "name": "gpu-tenancy"},
        }
        metadata = {"name": _flux_name(stack, wave), "namespace": "flux-system"}
        api = {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization"}
        documents.append(_as_yaml({**api, "metadata": metadata, "spec": spec}))
    return "---\n".join(documents)


def _flux_name(stack: str, wave: int) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", f"gpu-tenancy-{stack}-{folder_name(wave)}".lower())


def _of_the_chart(engine: Engine, release: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the objects that Helm would create for the release. Pulumi's Kubernetes provider contains Helm."""
    chart = Path(release["chart"])
    if not (engine.root / chart).is_dir():
        raise EngineError(f"the chart {chart} is not in this checkout, so it cannot be rendered; run make toolchain")
    given = {**release, "chart": str(engine.root / chart)}
    with tempfile.TemporaryDirectory(prefix="gpu-tenancy-render-") as folder:
        project = Path(folder)
        (project / "release.json").write_text(json.dumps(given), encoding="utf-8")
        (project / "__main__.py").write_text(_CHART_PROGRAM, encoding="utf-8")
        runtime = {"name": "python", "options": {"toolchain": "pip", "virtualenv": str(engine.root / ".venv")}}
        (project / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "chart", "runtime": runtime}), encoding="utf-8")
        environment = {**engine.environment, "PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true"}
        program = str(engine.pulumi)
        for command in (("stack", "init", "render"), ("preview", "--stack", "render", "--json", "--non-interactive")):
            done = subprocess.run(
                [program, *command], cwd=project, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise EngineError(f"Kueue's chart cannot be rendered:\n{(done.stderr + done.stdout).strip()}")
        events = Events()
        for line in done.stdout.splitlines():
            events.add(line)
    for each in events.resources.values():
        if _is_an_object(each) and not is_patch_type(each.type):
            yield each.inputs


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def _as_yaml(manifest: Mapping[str, Any]) -> str:
    return yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=1000)
