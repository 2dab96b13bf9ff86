"""Runs `kubectl gpumem init`: reads the cluster, proposes a stack, and writes the stack file."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agents.runtime.errors import AgentError
from gpumem import survey
from gpumem.init import peaks
from gpumem.init.peaks import Peak
from gpumem.init.propose import FoundGpus, StackProposal, find_gpus, propose
from gpumem.init.stack_text import stack_text
from gpumem.paper import Paper, text_of_lines
from gpumem.pods import Workload
from gpumem.prometheus import OPEN, SCHEMES, Access, Prometheus, without_password
from gpumem.report import Report
from gpumem.survey import ApiReader
from tenancy.names import METRIC_POD_USED

_STACK_NAME = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,99}")
# In a stack file, Pulumi writes these keys next to `config`. Pulumi needs its keys in a stack file for a stack that it
# has previewed before.
_PULUMIS = re.compile(r"^(?:encryptionsalt|encryptedkey|secretsprovider):.*$", re.MULTILINE)


class InitError(AgentError):
    """Raised if the stack file cannot be written. The message of the error explains how to correct the mistake."""


@dataclass(frozen=True, kw_only=True)
class Initialized:
    """The report of init: the name of the written file, the numbers to check, and the proposal."""

    file: str
    assumed: tuple[str, ...]
    proposal: StackProposal


def report_of_folder(manifests: Path, stack: str, folder: Path, *, overwrite: bool) -> Report:
    """Writes the file Pulumi.STACK.yaml from a folder of manifests, without a cluster. Raises AgentError."""
    from gpumem.init import manifests as git  # noqa: PLC0415 (a cluster needs no parser of manifests)

    path = _target(stack, folder, overwrite=overwrite)
    source = git.read(manifests)
    found = survey.read(source)
    proposal = git.guessed(propose(found, find_gpus(found), {}), source)
    _write(path, stack_text(proposal, manifests.name or str(manifests)), overwrite=overwrite)
    return _written(path, proposal)


def report(
    source: ApiReader,
    stack: str,
    folder: Path,
    *,
    prometheus: str | None,
    days: int,
    overwrite: bool,
    access: Access = OPEN,
) -> Report:
    """Writes the file Pulumi.STACK.yaml into the directory. Raises InitError, SurveyError and HistoryError."""
    path = _target(stack, folder, overwrite=overwrite)
    found = survey.read(source)
    gpus = find_gpus(found)
    server = None if prometheus is None else _server(prometheus, access)
    proposal = propose(found, gpus, _peaks(gpus, server, days))
    if server is not None:
        proposal = replace(proposal, unknown=(*proposal.unknown, *sorted(server.skipped)))
    _write(path, stack_text(proposal), overwrite=overwrite)
    return _written(path, proposal)


def _written(path: Path, proposal: StackProposal) -> Report:
    found = Initialized(file=path.name, assumed=tuple(_assumed(proposal)), proposal=proposal)
    return Report("init", found, initialized_text)


def _target(stack: str, folder: Path, *, overwrite: bool) -> Path:
    if not _STACK_NAME.fullmatch(stack):
        raise InitError(f"{stack!r} is no stack's name: write the NAME of a Pulumi.NAME.yaml, such as lab")
    path = folder / f"Pulumi.{stack}.yaml"
    if path.exists() and not overwrite:
        raise InitError(f"{path.name} is there already: choose another name, or give --overwrite to lose its content")
    return path


def _server(prometheus: str, access: Access) -> Prometheus:
    if not prometheus.startswith(SCHEMES):
        shown = without_password(prometheus)
        raise InitError(f"--from {shown}: must be Prometheus' address, such as http://localhost:9090")
    return Prometheus(prometheus, access)


def _peaks(found: FoundGpus, server: Prometheus | None, days: int) -> Mapping[Workload, Peak]:
    if server is None:
        return {}
    now = time.time()
    for metric in (METRIC_POD_USED, peaks.DCGM_USED):
        server.refuse_what_is_mixed(metric, now, days, renamed=False)
    return peaks.read(server, found.users, found.alone(), days=days, now=now)


def _write(path: Path, text: str, *, overwrite: bool) -> None:
    try:
        kept = _PULUMIS.findall(path.read_text(encoding="utf-8")) if overwrite and path.exists() else []
        with path.open("w" if overwrite else "x", encoding="utf-8") as file:
            file.write("".join([text, *(f"\n{line}\n" for line in kept)]))
    except FileExistsError:
        raise InitError(f"{path.name} was written by somebody else at the same time") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InitError(f"{path} cannot be written: {error}") from None


def _assumed(proposal: StackProposal) -> Iterator[str]:
    for pool in proposal.pools:
        for key in ("device_count", "memory_mib", "reserve_mib", "driver_reserved_mib", "floor_mib"):
            number = getattr(pool, key)
            if number is not None and number.is_assumed:
                yield f"pools.{pool.name}.{key}"
    yield from (f"residents.{seat.name}.gpumem_mib" for seat in proposal.seats if seat.gpumem_mib.is_assumed)


@text_of_lines
def initialized_text(report: Initialized, paper: Paper) -> Iterator[str]:
    proposal = report.proposal
    yield f"{report.file} is written. Nothing in the cluster was changed."
    yield ""
    yield from paper.table(
        ("POOL", "NODES", "DEVICES", "MIB EACH", "SEATS", "MIB PROMISED"),
        [
            (
                pool.name,
                str(len(pool.nodes)),
                str(pool.device_count.value),
                str(pool.device_mib or "-"),
                str(sum(seat.pool == pool.name for seat in proposal.seats)),
                str(sum(seat.total_mib for seat in proposal.seats if seat.pool == pool.name)),
            )
            for pool in proposal.pools
        ],
    )
    yield ""
    if report.assumed:
        yield from paper.wrapped(f"check these first, nothing shows them: {', '.join(report.assumed)}")
    for line in proposal.misfits:
        yield from paper.wrapped(f"! {line}", alarm=True)
    yield from paper.unknown(proposal.unknown)
    yield ""
    stack = report.file.removeprefix("Pulumi.").removesuffix(".yaml")
    yield f"next: make preview STACK={stack}"
