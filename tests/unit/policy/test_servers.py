"""Tests the rule on the flags of model servers, with the real command lines of tests/support/servers.yaml."""

from typing import Any

import pytest

from tenancy.choices import Enforce
from tenancy.ledger import Ledger
from tests.support import graphs
from tests.support.graphs import UNKNOWN, judge, platform, put
from tests.support.servers import REAL

MAIN = "spec.template.spec.containers.0"
SHARE = ["vllm", "serve", "m", "--gpu-memory-utilization"]
SMALL = ("0.25", "0.28", "<=0.1", "4096000000")  # Of these, a seat of 5000 MiB on a T4 has room.


def said(container: dict[str, Any], ledger: Ledger = graphs.LEDGER) -> list[str]:
    program = platform(ledger)
    for field, value in container.items():
        put(program["llama-swap"], f"{MAIN}.{field}", value)
    return [line for line in judge(program) if line.startswith("server-flags:")]


@pytest.mark.parametrize("case", REAL, ids=[f"{n} {each['repo']}" for n, each in enumerate(REAL)])
def test_a_real_command_line_is_refused_only_if_its_claim_exceeds_the_seat(case: dict[str, Any]) -> None:
    expected = [each for each in case["claims"] if not any(small in each for small in SMALL)]
    found = said(case["container"])
    assert len(found) == len(expected), found
    assert all("its seat is 5000; write " in line for line in found)


@pytest.mark.parametrize("value", [UNKNOWN, [UNKNOWN], [*SHARE, UNKNOWN], [*SHARE, "x"], [*SHARE, "0.33"]])
def test_an_unknown_flag_or_one_within_the_seat_is_no_finding(value: object) -> None:
    assert said({"command": value}) == []


def test_a_driver_that_caps_shows_the_server_its_seat_as_the_whole_card() -> None:
    assert said({"command": [*SHARE, "0.9"]}, graphs.pool("t4", enforce=Enforce.DRIVER)) == []


def test_bytes_are_compared_with_the_seat_too() -> None:
    (line,) = said({"args": ["tritonserver", "--cuda-memory-pool-byte-size=0:8192000000"]})
    assert "Triton will take a pool of 8192000000 bytes = 7812 MiB, its seat is 5000" in line
    assert "write --cuda-memory-pool-byte-size DEVICE:5242880000 or less" in line
    assert said({"args": ["tritonserver", "--cuda-memory-pool-byte-size=0:5242880000"]}) == []
