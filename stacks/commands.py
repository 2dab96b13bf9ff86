"""Implements the commands on one stack.

Each command on a stack returns an exit code. Before the first change, a command can raise an error with several lines
of text.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from stacks import kubeconfig, lock, settings, stackfile
from stacks import render as manifests
from stacks.cluster import Cluster, connect
from stacks.engine import GATED, Engine, EngineError, refuse_flags
from stacks.existing import leftovers, removal
from stacks.existing.check import Verdict, check
from stacks.existing.leftovers import Leftovers
from stacks.existing.objects import Declared
from stacks.existing.objects import declared as declared_object
from stacks.follow import follow
from stacks.kubeconfig import KubeconfigError
from stacks.preview import run
from stacks.preview.events import Op
from stacks.preview.picture import picture
from stacks.preview.progress import Progress
from stacks.preview.remedies import ledger_before, remedies
from stacks.preview.report import PreviewOutcome, removal_report, report
from stacks.problems import key
from stacks.retirement import Retirement
from stacks.settings import ConfigError, StackSettings
from stacks.waits import Waits
from tenancy.drawing.chart import seating_chart
from tenancy.host_memory.chart import host_memory_chart
from tenancy.ledger import Ledger
from tenancy.names import CLUSTER_TYPE, EXEMPT_BY_NAME, PROJECT, stack_mark
from tenancy.workload import map_at

Exported = Mapping[str, Any]
# Compares a stack with a cluster, and returns the report as text of a width. Raises AgentError if the cluster cannot be
# read.
Preflight = Callable[[Engine, Cluster, int], str]

EXAMPLE = Path("examples") / "template" / "gpus.yaml"
_ROOT = "pulumi:pulumi:Stack"
# The longest wait for objects that are being deleted, and the pause between two looks.
_ENDING_SECONDS, _BETWEEN_SECONDS = 300, 2
_PICTURES = Path("build") / "preview"
_SCHEMA = "# yaml-language-server: $schema=docs/config.schema.json\n#\n"


@dataclass(frozen=True)
class State:
    """The state as `pulumi stack export` prints it, with all files on which a preview rests: those of the program, the
    stack file, and those of the state.
    """

    exported: Exported
    files: Mapping[Path, tuple[int, int]]

    @classmethod
    def of(cls, engine: Engine) -> "State":
        """Reads the state. Creates the stack if the backend lacks it. Raises EngineError."""
        is_new = _create(engine)
        files = _files(engine)
        return cls({"deployment": {}} if is_new else engine.export(), files)

    def refuse_a_change(self, engine: Engine) -> None:
        """Raises EngineError if something has changed since the state was read. Then the preview is wrong.

        In another backend than a folder, the state has no file.
        """
        files = _files(engine)
        changed = {each.name for each in {**self.files, **files} if files.get(each) != self.files.get(each)}
        if not lock.state_files(engine) and engine.export() != self.exported:
            changed.add(f"The state of {engine.stack}")
        if changed:
            told = f"{', '.join(sorted(changed))} has changed since the preview, for example by another command"
            raise EngineError(f"{told}; run this command again.")

    @property
    def resources(self) -> Sequence[Mapping[str, Any]]:
        return self.exported["deployment"].get("resources") or ()


def preview(engine: Engine, *, flags: Sequence[str], full: bool, before: Path | None = None) -> int:
    """Previews the stack and prints a report. The exit code of a preview is 0 if the policy pack accepts the stack.

    Also draws the seats and what changes into a file. What changes is compared with the stack file `before`, or by
    default with the stack's state. So is the remedy of a refused preview.
    """
    refuse_flags(flags, gated=True)
    declared = settings.load_file(engine.existing_stack_file())
    _create(engine)
    try:
        cluster = _cluster(engine)
    except KubeconfigError as error:
        cluster = f"{error}; the program is judged without one"
    return _judge(engine, flags, declared, cluster, full=full, before=before).exit_code


def up(engine: Engine, *, flags: Sequence[str], full: bool, yes: bool, preflight: Preflight) -> int:
    """Previews the stack, compares it with the cluster, prints the report of `preflight`, asks for consent, and
    applies the stack.

    Raises EngineError if the rollout would take over existing objects of the cluster (docs/adr/0034).

    `pulumi up` does not preview the stack again, and runs without the policy pack. The pack has judged the same
    program, settings and state in the preview, because `up` stops if one of them has changed since then. `up` does not
    pass --plan to Pulumi, because --plan is experimental. With --plan, Pulumi fails at the first value that only the
    real cluster knows (the uid of a Namespace).
    """
    refuse_flags(flags, gated=True)
    declared = settings.load_file(engine.existing_stack_file())
    with _begun(engine) as (before, where, cluster):
        state, left = _settled(engine, before, cluster)
        ended = _judge(engine, flags, declared, where, full=full)
        if ended.exit_code:
            return ended.exit_code
        resources = ended.events.resources
        objects = [each for each in map(declared_object, resources.values()) if each is not None]
        _tell(engine, check(resources.values(), left, cluster), "does not fit the cluster")
        _print_leftovers(engine, left, objects)
        if any(each.op is not Op.SAME for each in resources.values()):
            print(f"\n{preflight(engine, cluster, _width())}", end="", flush=True)
        _confirm(f"Apply {engine.stack}", where, yes=yes)
        state.refuse_a_change(engine)
        _clear(engine, state, left, objects, cluster)
        given = ("--suppress-outputs", "--skip-preview", "--yes", *flags)
        if ended.displayed:
            return run.run_attended(engine, "up", "--suppress-progress", *given, environment=engine.state_at_the_end())
        waits = Waits(cluster)
        return follow(engine, "up", given, resources, lambda progress: waits.lines(progress.unfinished()))


def destroy(engine: Engine, *, flags: Sequence[str], yes: bool) -> int:
    """Previews the removal, lists what is lost, asks for the stack's name, and removes the stack.

    No command deletes a namespace (docs/adr/0034). Those that are empty then are named.
    """
    refuse_flags(flags, gated=False)
    with _begun(engine) as (before, where, cluster):
        state, left = before, _look(engine, before, cluster)
        if left.kueue.is_unrecorded:
            raise EngineError(f"Helm does not know {engine.stack}'s Kueue any more; run make up, and then this again.")
        if left.kueue.urn and not left.kueue.records:  # A killed removal has removed Kueue; Helm would not find it.
            engine.refresh([left.kueue.urn])
            state = State.of(engine)
        ended = _previewed(engine, "destroy", "--preview-only", *flags)
        sys.stdout.write(removal_report(ended, colour=_colour()))
        if ended.code or ended.interrupted:
            return ended.code or 1
        _tell(engine, removal.of_state(state.exported, cluster), "cannot go yet")
        _print_leftovers(engine, left, ())
        _confirm(f"Destroy {engine.stack}", where, yes=yes, word=engine.stack)
        state.refuse_a_change(engine)
        _clear(engine, state, left, (), cluster)
        code = _remove(engine, flags, state, ended, cluster)
        if not code:  # After Ctrl-C, the connection has ended too.
            _name_what_is_empty(engine, {*removal.patched_namespaces(state.exported), *left.namespaces}, cluster)
        return code


def refresh(engine: Engine, *, flags: Sequence[str], yes: bool) -> int:
    """Updates Pulumi's state from the cluster. Pulumi itself asks the operator for consent."""
    refuse_flags(flags, gated=False)
    given = (*(("--yes",) if yes else ()), *flags)
    with _begun(engine):
        return run.run_attended(engine, "refresh", *given, environment=engine.state_at_the_end())


def new(engine: Engine) -> int:
    """Writes a stack file from the example. The first preview of the new stack creates the stack itself."""
    path = engine.stack_file
    try:
        example = (engine.root / EXAMPLE).read_text(encoding="utf-8")
        with path.open("x", encoding="utf-8") as file:
            file.write(f"{_SCHEMA}{example}")
    except FileExistsError:
        raise EngineError(f"{path.name} is there already; remove it or choose another name") from None
    except OSError as error:
        raise EngineError(f"{path.name} cannot be written from {EXAMPLE}: {error.strerror}") from None
    print(f"{path.name} is written: put your GPU's numbers into it, then run\n  make preview STACK={engine.stack}")
    return 0


def render(engine: Engine, *, out: str, cluster: str | None) -> int:
    """Writes the stack as plain manifests into the folder `out`, if the policy pack accepts the stack.

    Every cluster accepts the manifests, or only the one whose kube-system has the uid `cluster`.

    The preview has an empty state and no cluster. Therefore it shows every object as the program declares it.
    """
    declared = settings.load_file(engine.existing_stack_file())
    with tempfile.TemporaryDirectory(prefix="gpu-tenancy-render-") as state:
        elsewhere = {"PULUMI_BACKEND_URL": f"file://{state}", "KUBECONFIG": f"{state}/none"}
        alone = replace(engine, environment={**engine.environment, **elsewhere})
        alone.select()
        ended = _judge(alone, (), declared, f"{engine.stack} as plain manifests", full=False)
        if ended.exit_code:
            return ended.exit_code
        objects = manifests.placed(alone, ended.events.resources.values(), cluster)
    manifests.write(engine.stack, objects, Path(out))
    print(f"{len(objects)} objects are written to {out}: docs/howto/use-flux-or-argo.md")
    return 0


def chart(engine: Engine) -> int:
    """Prints the seating chart.

    The seating chart marks each pool with more promises than memory. Only the policy pack refuses a pool with more
    promises than memory.
    """
    sys.stdout.write(_chart(settings.load_file(engine.existing_stack_file())))
    return 0


def ledger(engine: Engine) -> int:
    """Prints the configuration with which the policy pack judges other programs. The platform need not be up."""
    from stacks.platform import policy_configuration  # noqa: PLC0415 (other commands need no components)

    declared = settings.load_file(engine.existing_stack_file())
    print(json.dumps(policy_configuration(declared, f"{PROJECT}/{engine.stack}"), indent=1))
    return 0


def rules(engine: Engine) -> int:
    """Prints the alerts and the recording rules as a rule file of Prometheus. Raises EngineError."""
    from components.monitoring.component import rule_groups  # noqa: PLC0415 (other commands need no components)
    from stacks.platform import alerts_args  # noqa: PLC0415

    declared = settings.load_file(engine.existing_stack_file())
    if declared.alerts is None:
        raise EngineError(f"{key('alerts')}: is missing; add alerts: {{operator: false}}")
    groups = rule_groups(alerts_args(declared, declared.alerts, declared.ledger()))
    sys.stdout.write(yaml.safe_dump(groups, sort_keys=False, width=1000))
    return 0


def _chart(declared: StackSettings) -> str:
    host_memory = host_memory_chart(declared.host_memory())
    return seating_chart(declared.ledger(), width=_width(), colour=_colour()) + host_memory


def _width() -> int:
    return min(max(shutil.get_terminal_size().columns, 80), 120) if sys.stdout.isatty() else 100


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _judge(
    engine: Engine,
    flags: Sequence[str],
    declared: StackSettings,
    cluster: str,
    *,
    full: bool,
    before: Path | None = None,
) -> PreviewOutcome:
    print(cluster, flush=True)
    ended = _previewed(engine, "preview", *GATED, *flags, full=full)
    after = declared.ledger()
    earlier, origin = ledger_before(ended.events.resources.values()), "the last rollout"
    try:
        if before is not None:
            earlier, origin = settings.load_file(before).ledger(), str(before)
        line = f"picture of the seats: {_draw(engine, after, earlier, origin)}"
    except (ConfigError, OSError) as error:
        line = f"no picture of the seats: {error}"
    drawn = f"{_chart(declared)}\n{line}\n"
    sys.stdout.write(report(ended, drawn, colour=_colour(), remedies=remedies(after, earlier), observed=after.observed))
    sys.stdout.flush()
    return ended


def _previewed(engine: Engine, command: str, *flags: str, full: bool = False) -> PreviewOutcome:
    if full or run.wants_pulumis_display(flags):
        ended = run.preview_displayed(engine, command, *flags)
        print()
        return ended
    if sys.stderr.isatty():
        print(f"previewing {engine.stack} …", file=sys.stderr)
    return run.preview_quietly(engine, command, *flags)


def _draw(engine: Engine, after: Ledger, before: Ledger | None, origin: str) -> Path:
    """Writes the picture of the seats, compared with the ledger `before` from `origin`. Raises OSError."""
    path = _PICTURES / f"{engine.stack}.html"
    compared = f"Before: {origin}. After: {engine.stack_file.name}." if before else "There was no rollout before."
    (engine.root / path).parent.mkdir(parents=True, exist_ok=True)
    (engine.root / path).write_text(picture(engine.stack, after, before, compared), encoding="utf-8")
    return path


def _create(engine: Engine) -> bool:
    """Creates the stack if the backend lacks it. Returns True if it did. Raises EngineError."""
    return not lock.state_files(engine) and engine.select()


def _files(engine: Engine) -> Mapping[Path, tuple[int, int]]:
    """Returns the time in ns and the size in bytes of each file, which differ after each change."""
    found = [*engine.program_files(), *lock.state_files(engine)]
    return {file: (stat.st_mtime_ns, stat.st_size) for file in found for stat in (file.stat(),)}


def _unlock(engine: Engine) -> None:
    """Removes the lock of a killed run. Raises EngineError."""
    engine.existing_stack_file()
    if lock.is_stale(engine):
        engine.cancel()
        print(f"{engine.stack}: removed the lock of a run that ended before its time", flush=True)


@contextmanager
def _begun(engine: Engine) -> Iterator[tuple[State, str, Cluster]]:
    """Opens the state and the cluster, with a description of the cluster.

    Raises EngineError if the state is of another cluster.
    """
    _unlock(engine)
    state = State.of(engine)
    where = _cluster(engine)
    with connect(engine) as cluster:
        _refuse_the_state_of_another_cluster(engine, state, where, cluster)
        yield state, where, cluster


def _look(engine: Engine, state: State, cluster: Cluster) -> Leftovers:
    return leftovers.look(state.exported, stack_mark(PROJECT, engine.stack), cluster)


def _settled(engine: Engine, state: State, cluster: Cluster) -> tuple[State, Leftovers]:
    """Returns a state that agrees with the cluster about all that it names, and what it does not name.

    Waits for objects that a killed removal was deleting. Raises EngineError.
    """
    left, deadline = _look(engine, state, cluster), time.monotonic() + _ENDING_SECONDS
    while left.ending:
        if time.monotonic() > deadline:
            late = ", ".join(map(str, left.ending))
            raise EngineError(f"not gone in {_ENDING_SECONDS} s: {late}; kubectl describe says what they wait for")
        time.sleep(_BETWEEN_SECONDS)
        left = _look(engine, state, cluster)
    if not left.stale and not state.exported["deployment"].get("pending_operations"):
        return state, left
    if left.stale:
        print(f"{engine.stack} reads {len(left.stale)} objects again that have changed since its last run", flush=True)
    engine.refresh(left.stale or _root(state))  # Each refresh forgets operations that did not end.
    if left.kueue.settle(cluster):
        engine.refresh([left.kueue.urn])
    state = State.of(engine)
    return state, _look(engine, state, cluster)


def _print_leftovers(engine: Engine, left: Leftovers, objects: Collection[Declared]) -> None:
    for line in left.lines(objects):
        print(f"{engine.stack} {line}", flush=True)


def _clear(engine: Engine, state: State, left: Leftovers, objects: Collection[Declared], cluster: Cluster) -> None:
    if left:
        # Pulumi has no command that reads the locks. A refresh of the root fails if another run has locked the stack.
        engine.refresh(_root(state))
        leftovers.clear(left, cluster, objects)


def _root(state: State) -> list[str]:
    return [each["urn"] for each in state.resources if each["type"] == _ROOT]


def _refuse_the_state_of_another_cluster(engine: Engine, state: State, where: str, cluster: Cluster) -> None:
    """Compares the uid of kube-system, which the program reads into the state by a patch without any field."""
    patches = [each for each in state.resources if each["type"] == CLUSTER_TYPE]
    found = [map_at(each.get("outputs") or {}, "metadata") for each in patches]
    known = {each.get("uid") for each in found if each.get("name") == EXEMPT_BY_NAME} - {None}
    there = cluster.find(f"/api/v1/namespaces/{EXEMPT_BY_NAME}") if known else None
    if there is not None and there["metadata"]["uid"] not in known:
        backend = engine.environment.get("PULUMI_BACKEND_URL", "")
        raise EngineError(
            f"The state of {engine.stack} is of another cluster than {where}, so nothing was changed; choose its "
            f"context, or, if that cluster is gone, forget it: PULUMI_BACKEND_URL={backend} {engine.pulumi} stack rm "
            f"{engine.stack} --force --preserve-config"
        )


def _remove(engine: Engine, flags: Sequence[str], state: State, previewed: PreviewOutcome, cluster: Cluster) -> int:
    """Removes the stack. If no agent runs, also removes the gpumem from the nodes."""
    namespace = removal.retiring_namespace(state.exported)
    waits, retirement = Waits(cluster), Retirement(cluster, namespace) if namespace else None

    def look(progress: Progress) -> list[str]:
        return [*(retirement.step() if retirement else ()), *waits.lines(progress.unfinished())]

    return follow(engine, "destroy", ("--skip-preview", "--yes", *flags), previewed.events.resources, look)


def _tell(engine: Engine, verdict: Verdict, headline: str) -> None:
    """Prints the notes. Raises EngineError with the problems, if there are any."""
    for note in verdict.notes:
        print(f"{engine.stack} {note}", flush=True)
    if verdict.problems:
        lines = (f"{engine.stack} {headline}. Nothing was changed.", *(f"  {each}" for each in verdict.problems))
        raise EngineError("\n".join(lines))


def _name_what_is_empty(engine: Engine, namespaces: Collection[str], cluster: Cluster) -> None:
    if empty := removal.empty(cluster, sorted(namespaces)):
        print(
            f"{engine.stack} has left namespaces that are empty now; if nobody needs them: "
            f"kubectl delete namespace {' '.join(empty)}",
            flush=True,
        )


def _cluster(engine: Engine) -> str:
    """Returns a description of the cluster that Pulumi would write to.

    The kubeconfig and the context of the stack select the cluster. If the stack sets no kubeconfig or context,
    kubectl's current context selects the cluster. Raises KubeconfigError if the API server does not respond.
    """
    provider = stackfile.read(engine.stack_file).foreign
    config = provider.get("kubernetes:kubeconfig")
    if config == "":
        return "the cluster of kubernetes:kubeconfig, which is encrypted"
    found = kubeconfig.sources(engine.environment, config or "")
    cluster = kubeconfig.current(found, provider.get("kubernetes:context", ""))
    kubeconfig.check_reachable(cluster, engine.environment)
    return str(cluster)


def _confirm(question: str, cluster: str, *, yes: bool, word: str = "yes") -> None:
    """Asks the operator to type a word before a change of the cluster. Raises EngineError if the operator types
    anything else."""
    if yes:
        print(f"{question}: {cluster} (--yes)", flush=True)
        return
    try:
        answer = input(f"\n{question}: {cluster}\nType {word} to go on: ")
    except EOFError:
        answer = ""
        print()
    if answer != word:
        raise EngineError("Nothing was changed.")
