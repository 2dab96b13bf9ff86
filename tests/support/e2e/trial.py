"""Runs the steps of an attempt on a stack, with kills, and compares what people have in the cluster with before."""

import json
import random
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from tenancy import names
from tests.support.e2e.interrupting import kill_at
from tests.support.e2e.lab import CLASSES, NAMESPACES, Lab
from tests.support.e2e.one_state import expect_equal, of_stack
from tests.support.waiting import eventually
from tests.support.workspace import Outcome

Config = dict[str, Any]
Step = Callable[["Trial"], object]
SYSTEM = "gpu-tenancy-system"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
# The parts of the command lines by which a kill chooses processes.
PULUMI, PROVIDER, OURS = "/bin/pulumi ", "pulumi-resource-kubernetes", "-m stacks"
_RBAC, _ADMISSION = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
# What a rollout changes early and late.
_WATCHED = (
    CLASSES,
    NAMESPACES,
    "/api/v1/resourcequotas",
    "/api/v1/configmaps",
    f"{_RBAC}/rolebindings",
    f"{_RBAC}/clusterroles",
    f"{_ADMISSION}/validatingadmissionpolicies",
    f"{_ADMISSION}/validatingadmissionpolicybindings",
    "/apis/kueue.x-k8s.io/v1beta2/localqueues",
    "/apis/batch/v1/cronjobs",
)
_HELM = "/api/v1/secrets?labelSelector=owner%3Dhelm"
_LOCKED = re.compile("is in use by|is currently locked")


@dataclass
class Trial:
    """`spare` is the same stack on another machine, if the state is in a bucket. `said` is all that commands said."""

    lab: Lab
    config: str
    moments: random.Random
    spare: Lab | None = None
    people: dict[str, object] = field(default_factory=dict)
    others: dict[str, object] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    is_settled: bool = False
    is_new: bool = True
    is_as_written: bool = True

    def begin(self, *, rolls_out: bool) -> None:
        """Puts people's objects into the stack's namespaces and another one, and rolls the stack out."""
        self.said.clear()
        self.others.clear()
        self.configure()
        declared = yaml.safe_load(self.config)
        self.people = {
            f"{NAMESPACES}/{home}": None for home in ("theirs", *declared["tenants"], SYSTEM, "kueue-system")
        }
        for home in [*self.people]:
            self._put(NAMESPACES, {"metadata": {"name": home.rpartition("/")[2], "labels": {"owner": "me"}}})
            self._put(f"{home}/configmaps", {"metadata": {"name": "mine"}, "data": {"of": "people"}})
            if not home.endswith("-system"):
                self._put(f"{home}/persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": CLAIM})
        self.people = {path: _lasting(self.lab.found(path)) for path in self.people}
        self._pulumi("stack", "select", "--create")
        self.configure()
        if rolls_out and not self.is_settled:
            self.again("up")

    def end(self, last: str) -> None:
        """The last command again: nothing is lost, and the state and the cluster are equal."""
        self.again(last)
        self.is_settled = last == "up" and self.is_as_written
        self.expect_nothing_lost()
        eventually(lambda: not self._ending(), "what is being deleted is gone")
        expect_equal(self.exported(), self.api, self.mark)
        self._expect_one_helm()
        if last == "up":
            self.pulumi("preview", "--expect-no-changes")
        elif left := [f"{kind} {each['metadata']['name']}" for kind, each in self._ours()]:
            raise AssertionError(f"destroy leaves {left}")

    def expect_nothing_lost(self) -> None:
        now = {path: _lasting(self.api.get(path)) for path in self.people}
        lost = {path: (before, now[path]) for path, before in self.people.items() if now[path] != before}
        assert not lost, f"people lost {lost}"
        changed = {path for path, before in self.others.items() if self.api.get(path) != before}
        assert not changed, f"of another stack: {changed}"

    def _put(self, collection: str, manifest: Config) -> None:
        path = f"{collection}/{manifest['metadata']['name']}"
        if self.api.get(path) is None:
            self.api.create(collection, manifest)
        self.people[path] = None

    def _ours(self) -> Iterable[tuple[str, Mapping[str, Any]]]:
        yield from of_stack(self.api, self.mark)
        for each in self.lab.items(NAMESPACES):
            if any(entry["manager"] == self.mark for entry in each["metadata"].get("managedFields", ())):
                yield "Namespace", each

    def snapshot_of_ours(self) -> Iterable[tuple[str, Mapping[str, Any] | None]]:
        """Yields the objects of the stack by path, and the namespaces that it labels."""
        for path in _WATCHED:
            for each in (self.api.get(path) or {"items": []})["items"]:
                metadata = each["metadata"]
                if names.STACK in metadata.get("annotations", {}) or path == NAMESPACES:
                    home, _, plural = path.rpartition("/")
                    within = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
                    found = f"{home}{within}/{plural}/{metadata['name']}"
                    yield found, self.api.get(found)

    def _ending(self) -> list[str]:
        return [kind for kind, each in self._ours() if "deletionTimestamp" in each["metadata"]]

    def _expect_one_helm(self) -> None:
        is_declared = any(each["type"].endswith(":Release") for each in self.resources())
        found = [each["metadata"]["labels"]["status"] for each in self.lab.items(_HELM)]
        assert found.count("deployed") == int(is_declared), found
        assert set(found) <= {"deployed", "superseded"}, found
        definition = self.api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workloads.kueue.x-k8s.io")
        assert (definition is not None) == is_declared, "Kueue's definitions"

    @property
    def mark(self) -> str:
        return names.stack_mark(names.PROJECT, self.lab.stack)

    @property
    def api(self) -> Any:
        return self.lab.cluster.api

    def exported(self) -> Config:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "state.json"
            self._pulumi("stack", "export", "--file", str(file))
            return dict(json.loads(file.read_text()))

    def resources(self) -> list[Config]:
        return list(self.exported()["deployment"].get("resources") or ())

    def configure(self, change: Callable[[Config], object] | None = None, name: str | None = None) -> None:
        self.is_as_written = change is None and name is None
        replace(self.lab, config=self.config).write(change or (lambda _: None), name)
        if self.spare:  # with the salt of the state
            shutil.copy(self.lab.stack_file(name), self.spare.stack_file(name))

    def run(self, command: str, lab: Lab | None = None) -> Outcome:
        self.is_new = False
        done = (lab or self.lab).run(command)
        self.said.append(f"$ {command}: {done.code}\n{done.text}")
        return done

    def again(self, command: str) -> str:
        """Runs the command, also as long as another run has locked the stack. It ends well."""
        outcomes: list[Outcome] = []

        def ends() -> bool:
            outcomes.append(self.run(command))
            return not _LOCKED.search(outcomes[-1].text)

        eventually(ends, "the other run ends", pause_seconds=2)
        assert outcomes[-1].code == 0, outcomes[-1].text
        return outcomes[-1].text

    def refused(self, command: str, why: str, lab: Lab | None = None) -> None:
        """The command ends with this reason, and changes nothing."""
        before = self.versions()
        done = self.run(command, lab)
        assert (done.code, why in done.text) == (1, True), f"not refused with {why!r}: {done.code} {done.text}"
        assert self.versions() == before, "a refused command changes something"

    def pulumi(self, command: str, *flags: str, fails: bool = False, lab: Lab | None = None) -> str:
        """Runs Pulumi alone."""
        plain = ("--skip-preview", "--yes") if command in ("up", "destroy", "refresh") else ()
        return self._pulumi(command, *plain, *flags, fails=fails, lab=lab)

    def _pulumi(self, *arguments: str, fails: bool = False, lab: Lab | None = None) -> str:
        at = lab or self.lab
        done = at.space.pulumi(*arguments, "--stack", at.stack, cwd=at.space.project, **at.kubeconfig)
        self.said.append(f"$ pulumi {' '.join(arguments)}: {done.code}\n{done.text}")
        assert fails or done.code == 0, f"pulumi {arguments[0]}: {done.text}"
        return done.text

    def shell(self, script: str, *, fails: bool = False) -> str:
        """Runs a script in the project, with kubectl in PATH."""
        done = self.lab.space.run("bash", "-ec", script, cwd=self.lab.space.project, **self.lab.kubeconfig)
        self.said.append(f"$ {script}: {done.code}\n{done.text}")
        assert fails or done.code == 0, done.text
        return done.text

    def start(self, command: str, lab: Lab) -> tuple["subprocess.Popen[bytes]", Path]:
        """Starts one of our commands. Returns the process, and the file of its output."""
        log = Path(tempfile.mkstemp(dir=self.lab.space.folder)[1])
        with log.open("wb") as output:
            process = subprocess.Popen(
                lab.command(command),
                cwd=lab.space.project,
                env=lab.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        return process, log

    def versions(self) -> set[tuple[str, str]]:
        metadata = [each["metadata"] for path in _WATCHED for each in (self.api.get(path) or {"items": []})["items"]]
        return {(each["uid"], each["resourceVersion"]) for each in metadata}

    def kill(
        self, command: str, moment: Callable[["Trial"], Callable[[], object]], only: str = "", *, checkpoints: bool
    ) -> None:
        """Kills our command if `only` is OURS, else Pulumi as our command runs it, or with the state at each step."""
        self.is_new = False
        space, log = self.lab.space, self.lab.space.folder / "killed.log"
        given = self.lab.command(command) if only == OURS else space.engine(command, self.lab.stack)
        at_the_end = {} if checkpoints else {"PULUMI_SKIP_CHECKPOINTS": "true"}
        environment = {**self.lab.environment, **at_the_end}
        code = kill_at(moment(self), given, cwd=space.project, env=environment, log=log, only=only)
        self.said.append(f"$ {command}, killed: {code}\n{log.read_text()}")
        print(f"    {command} {'killed' if code == -signal.SIGKILL else f'ended with {code}'}", flush=True)


def _lasting(found: Mapping[str, Any] | None) -> object:
    if found is None:
        return None
    metadata = found["metadata"]
    return metadata["uid"], metadata.get("labels", {}).get("owner"), found.get("data"), "deletionTimestamp" in metadata
