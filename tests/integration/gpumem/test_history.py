"""Tests `advise` with some hours of the exporter's series in a real Prometheus."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpumem import cli, history, report
from gpumem.prometheus import Prometheus
from gpumem.proposal import UseSample
from tests.support.kubectl import LEDGER_OF_PROD
from tests.support.paths import ROOT
from tests.support.remembering import prometheus

MIB = 2**20
MINUTES, RELOAD = 900, 600
USED, DECLARED, TOTAL, FREE = (
    f"gpu_{name}_bytes"
    for name in ("pod_memory_used", "pod_memory_declared", "device_memory_total", "device_memory_free")
)
NOW = time.time() // 60 * 60
DEVICE = 'gpu="0",uuid="GPU-0",node="k8s-node1"'


def pod(namespace: str, name: str) -> str:
    return f'namespace="{namespace}",pod="{name}",pod_uid="uid-{name}"'


def use(namespace: str, name: str, container: str) -> str:
    return f'{USED}{{{pod(namespace, name)},container="{container}",{DEVICE}}}'


def at(minute: int) -> dict[str, int]:
    second = minute >= RELOAD
    load = 6750 if RELOAD <= minute < RELOAD + 3 else 1200
    return {
        use("immich", "immich-ml-1", "main"): 2000,
        use("immich", "immich-ml-1", "sidecar"): 100,
        use("immich", f"immich-server-{1 + second}", "main"): load,
        use("llama-swap", "qwen-0", "main"): 4350,
        use("llama-swap", "toolbox", "main"): 9000,  # The pod toolbox has no declared budget.
        f"{DECLARED}{{{pod('immich', 'immich-ml-1')}}}": 3000,
        f"{DECLARED}{{{pod('immich', f'immich-server-{1 + second}')}}}": 1800,
        f"{DECLARED}{{{pod('llama-swap', 'qwen-0')}}}": 5000,
        f"{TOTAL}{{{DEVICE}}}": 15360,
        f"{FREE}{{{DEVICE}}}": 15360 - 2100 - load - 4350 - 100,
    }


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lines: dict[str, list[str]] = {name: [] for name in (USED, DECLARED, TOTAL, FREE)}
    for minute in range(MINUTES):
        for series, mib in at(minute).items():
            moment = round(NOW) - (MINUTES - minute) * 60
            lines[series.partition("{")[0]].append(f"{series} {mib * MIB} {moment}")
    text = [
        line
        for name, found in lines.items()
        for line in (f"# TYPE {name} gauge", *sorted(found, key=lambda line: (line.split()[0], line.split()[2])))
    ]
    with prometheus(tmp_path_factory.mktemp("prometheus"), text) as found:
        yield found


def test_what_each_pod_used_is_read_by_seat_and_device(address: str) -> None:
    found = history.read(address, LEDGER_OF_PROD, days=3, now=NOW)
    assert found.unknown == ()
    by_seat: dict[str, list[UseSample]] = {}
    for sample in found.samples:
        by_seat.setdefault(sample.seat, []).append(sample)
    assert {sample.mib for sample in by_seat["immich-ml"]} == {2100}
    assert {sample.mib for sample in by_seat["llama-swap"]} == {4350}
    assert {sample.mib for sample in by_seat["immich-server"]} == {1200, 6750}
    assert len({sample.pod for sample in by_seat["immich-server"]}) == 2
    assert MINUTES <= len(by_seat[""]) <= MINUTES + 2
    floor = replace(LEDGER_OF_PROD.pools[0], floor_mib=2500)
    tight = history.read(address, replace(LEDGER_OF_PROD, pools=(floor,)), days=3, now=NOW).samples
    assert {(s.seat, s.mib) for s in tight if s.pressed} >= {("immich-server", 6750), ("immich-ml", 2100)}
    assert 3 <= len([s for s in tight if s.seat == "immich-ml" and s.pressed]) <= 5
    assert not [s for s in tight if s.seat == "immich-ml" and s.pressed and abs(s.time - NOW + 300 * 60) > 300]


def test_prods_wrong_budget_is_found_with_its_cold_load(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert cli.main(["advise", "--from", address, "--days", "3", "--stack", "prod", "-o", "json"], {}) == report.WAITS
    seats = {seat["seat"]: seat for seat in json.loads(capsys.readouterr().out)["seats"]}
    server = seats["immich-server"]
    assert (server["verdict"], server["proposed_mib"]) == ("raise", 6800)
    assert (server["starts"], server["cold_max_mib"], server["used_max_mib"]) == (1, 6750, 1200)
    assert (seats["llama-swap"]["verdict"], seats["llama-swap"]["starts"]) == ("short", 0)


def test_a_long_history_comes_in_several_answers(address: str) -> None:
    server = Prometheus(address)
    start = NOW - 10 * 86_400
    parts = list(server.over("vector(time())", start, NOW, 60))
    times = [time for series in parts for time, _ in series.values]
    assert len(parts) == 2
    assert times == [start + 60 * n for n in range(10 * 1440 + 1)]
    assert [series.values[0][1] for series in server.at("vector(7)", NOW)] == [7]
