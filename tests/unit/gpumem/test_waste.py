"""Tests which seats `who --since` reports to have wasted memory."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumem import cli
from gpumem.history import SeatUses
from gpumem.paper import Paper
from gpumem.proposal import UseSample
from gpumem.waste import waste_text, wasted
from tests.support.kubectl import LEDGER_OF_PROD, FakeApi, api

CSV = "time,seat,mib,pod\n60,immich-ml,1000,a\n120,immich-ml,2000,a\n"


def uses(*samples: tuple[float, str, float]) -> SeatUses:
    return SeatUses(tuple(UseSample(time, seat, mib, f"pod-{mib}") for time, seat, mib in samples))


def test_the_seat_that_used_least_of_its_memory_over_the_time_comes_first() -> None:
    found = wasted(uses((60, "llama-swap", 4000), (60, "immich-ml", 100), (120, "llama-swap", 5000)), LEDGER_OF_PROD)
    assert [(row.seat, row.waste_mib, row.used_max_mib, row.ran) for row in found.seats] == [
        ("immich-ml", 2950, 100, 0.5),
        ("immich-server", 1800, 0, 0),
        ("llama-swap", 500, 5000, 1),
    ]


def test_what_one_replica_uses_over_its_budget_does_not_make_up_for_the_waste_at_other_times() -> None:
    (row,) = wasted(
        uses((60, "llama-swap", 9000), (120, "llama-swap", 1000)), LEDGER_OF_PROD, namespace="llama-swap"
    ).seats
    assert (row.used_mib, row.waste_mib) == (5000, 2000)


def test_the_replicas_of_a_seat_count_together() -> None:
    seat = replace(LEDGER_OF_PROD.seats[2], replicas=2)
    ledger = replace(LEDGER_OF_PROD, seats=(seat,))
    (row,) = wasted(uses((60, "llama-swap", 4000), (60, "llama-swap", 3000)), ledger).seats
    assert (row.declared_mib, row.used_mib, row.waste_mib) == (10000, 7000, 3000)


def test_of_a_time_without_measurements_nobody_has_wasted_anything() -> None:
    found = wasted(replace(uses(), unknown=("nothing was measured",)), LEDGER_OF_PROD)
    assert found.seats == ()
    assert waste_text(found, Paper()) == "not known: nothing was measured\n"


class Reached(nullcontext[Any], FakeApi):
    pass


def typed(words: str) -> int:
    answer = Reached()
    answer.__dict__.update(vars(api()))
    answer.enter_result = answer
    return cli.main(words.split(), {}, lambda flags: answer)


def test_a_history_in_a_file_is_reported_by_who(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "use.csv"
    file.write_text(CSV)
    assert typed(f"who --since 7d --from {file} -n immich -o json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["first"]) == ("waste", "1970-01-01T00:01:00Z")
    assert [(row["seat"], row["waste_mib"]) for row in found["seats"]] == [("immich-server", 1800), ("immich-ml", 1500)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("who --since 7d", "--since and --from belong together"),
        ("who --from http://localhost:9090", "--since and --from belong together"),
        ("who --since 7d --from x --watch", "leave out --node"),
        ("who --since 0d --from x", "must be whole days, such as 7d"),
    ],
)
def test_flags_that_do_not_belong_together_are_refused(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        typed(words)
    assert said in capsys.readouterr().err
