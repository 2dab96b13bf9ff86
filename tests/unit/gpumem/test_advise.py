"""Tests the budgets that advise proposes for a stack's seats."""

import json
from pathlib import Path

import pytest

from gpumem import checkout, cli, report
from gpumem.checkout import CheckoutError
from gpumem.proposal import DAY_SECONDS
from tests.support.paths import ROOT
from tests.support.prod import PROD

HOUR = 3600


def history(folder: Path, days: int = 14, **seats: int) -> str:
    lines = [
        f"{day * DAY_SECONDS + hour * HOUR},{name.replace('_', '-')},{mib}"
        for day in range(days)
        for hour in range(24)
        for name, mib in seats.items()
    ]
    file = folder / "use.csv"
    file.write_text("\n".join(["time,seat,mib", *lines, ""]))
    return str(file)


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_patch_changes_the_numbers_and_no_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    use = history(tmp_path, llama_swap=5501, immich_ml=2050, frigate=1950)
    assert cli.main(["advise", "--from", use, "--stack", "prod"], {}) == report.WAITS
    text = capsys.readouterr().out
    changed = [line for line in text.splitlines() if line.startswith(("+", "-")) and line[1:2] == " "]
    assert changed == [
        "-    immich-ml: {tenant: immich, pool: t4, gpumem_mib: 3000}",
        "-    llama-swap: {tenant: llama-swap, pool: t4, gpumem_mib: 5000}",
        "+    immich-ml: {tenant: immich, pool: t4, gpumem_mib: 2100}",
        "+    llama-swap: {tenant: llama-swap, pool: t4, gpumem_mib: 5600}",
    ]
    assert "they fit together, by settings and policy pack:" in text
    text = " ".join(text.split())
    assert "above 5000 on 14 days and 100.0% of the time that it ran, at most 5501" in text
    assert "the risk that the next 7 days go above 5600 is at most 50%, if they are like the 14 days measured" in text
    assert "no start of a pod was seen, and a start may need more" in text


def test_what_fits_only_apart_is_no_patch_and_says_which_seats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use = history(tmp_path, llama_swap=6996, immich_server=6750)
    assert cli.main(["advise", "--from", use, "--stack", "prod", "-o", "json"], {}) == report.WAITS
    found = json.loads(capsys.readouterr().out)
    raised = {seat["seat"]: seat["proposed_mib"] for seat in found["seats"] if seat["verdict"] == "raise"}
    assert raised == {"llama-swap": 7000, "immich-server": 6800}
    assert found["patch"] is None
    (line,) = found["refused"]
    assert line.startswith(
        "budgets: t4: 20336 MiB promised, 14000 advertised (6336 over): llama-swap 7000, immich-server"
    )
    cli.main(["advise", "--from", use, "--stack", "prod"], {})
    assert "would be: llama-swap 7000, immich-server 6800, immich-ml 3000" in " ".join(capsys.readouterr().out.split())


def test_right_budgets_are_nothing_to_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    use = history(tmp_path, llama_swap=4950, immich_ml=2901)
    assert cli.main(["advise", "--from", use, "--stack", "prod", "-n", "llama-swap"], {}) == report.DONE
    text = capsys.readouterr().out
    assert "nothing to change" in text
    assert "immich" not in text


def test_a_short_history_lowers_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advise", "--from", history(tmp_path, 6, llama_swap=1000), "--stack", "prod"], {}) == report.DONE
    text = " ".join(capsys.readouterr().out.split())
    assert "used 1000 of 5000 at most; not lowered: 13 days must be measured hour by hour, and 6.0 were" in text
    assert "nothing to change" in text


def test_a_growing_seat_gets_a_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    use = tmp_path / "use.csv"
    rows = [f"{hour * HOUR},llama-swap,{1000 + 100 * (hour // 24)}" for hour in range(14 * 24)]
    use.write_text("\n".join(["time,seat,mib", *rows, ""]))
    assert cli.main(["advise", "--from", str(use), "--stack", "prod"], {}) == report.DONE
    text = " ".join(capsys.readouterr().out.split())
    assert "llama-swap: keep 5000; it grows by 100.0 MiB a day, and reaches 5000 about 1970-02-11" in text


def stack(folder: Path, residents: str) -> checkout.AcceptedStack:
    before, _, after = PROD.read_text().partition("  gpu-tenancy:residents:\n")
    rest = after.partition("\n\n")[2]
    (folder / "Pulumi.x.yaml").write_text(f"{before}  gpu-tenancy:residents:\n{residents}\n\n{rest}")
    return checkout.read("x", folder)


INFERENCE = "    inference: {tenant: inference, pool: node-4, gpumem_mib: 12288}"


FRIGATE = {("residents", "frigate", "gpumem_mib"): 2500}


def test_a_file_with_an_alias_is_left_to_the_operator(tmp_path: Path) -> None:
    residents = "    frigate: &two {tenant: frigate, pool: t4, gpumem_mib: 2000}\n    second: *two"
    with pytest.raises(CheckoutError, match="has an alias"):
        checkout.with_numbers(stack(tmp_path, f"{INFERENCE}\n{residents}"), FRIGATE)


def test_a_number_with_an_anchor_is_left_to_the_operator(tmp_path: Path) -> None:
    residents = "    frigate: {tenant: frigate, pool: t4, gpumem_mib: &two 2000}"
    with pytest.raises(CheckoutError, match=r"no number of its own at residents\.frigate"):
        checkout.with_numbers(stack(tmp_path, f"{INFERENCE}\n{residents}"), FRIGATE)


def test_a_block_is_patched_like_a_line(tmp_path: Path) -> None:
    found = stack(
        tmp_path, f"{INFERENCE}\n    frigate:\n      tenant: frigate\n      pool: t4\n      gpumem_mib: 2000 # x"
    )
    changed = checkout.with_numbers(found, FRIGATE)
    assert (changed.refusals, "gpumem_mib: 2500 # x" in changed.text) == ((), True)
