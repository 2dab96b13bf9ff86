"""Tests what `kubectl gpumem estimate` computes from a model's size and a server's flags."""

import json
from typing import Any

import pytest

from gpumem import cli

MODEL = ["estimate", "--weights", "4.9Gi", "--layers", "32", "--kv-heads", "8", "--head-dim", "128", "-o", "json"]


def estimated(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert cli.main([*MODEL, *more], {}) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


CASES: dict[str, tuple[list[str], tuple[int, int, int]]] = {
    "a context": (["--context", "8192"], (5018, 1024, 6554)),
    "several requests": (["--context", "8192", "--parallel", "4"], (5018, 4096, 9626)),
    "a type": (["--context", "8192", "--kv-type", "q8_0"], (5018, 544, 6074)),
    "no overhead": (["--context", "8192", "--overhead", "0"], (5018, 1024, 6042)),
    "llama.cpp": (
        ["--", "llama-server", "-c", "8192", "-ctk", "q8_0", "-ctv", "q8_0", "-ngl", "16"],
        (2509, 272, 3293),
    ),
    "Ollama": (["--", "OLLAMA_CONTEXT_LENGTH=8192", "OLLAMA_NUM_PARALLEL=2", "ollama", "serve"], (5018, 2048, 7578)),
    "vLLM": (["--", "vllm", "serve", "m", "--max-model-len=8192", "--kv-cache-dtype", "fp8"], (5018, 512, 6042)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_need_is_the_weights_the_cache_and_the_overhead(capsys: pytest.CaptureFixture[str], case: str) -> None:
    more, expected = CASES[case]
    found = estimated(capsys, *more)
    assert (found["weights_mib"], found["kv_cache_mib"], found["gpumem_mib"]) == expected


def test_the_text_shows_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*MODEL[:-2], "--context", "8192"], {}) == 0
    assert "KV cache       1024  2 x 32 layers x 8 KV heads x 128 x 2 bytes x 8192 tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "say how many tokens"),
        (["--context", "1", "--kv-type", "x"], "--kv-type x: must be one of f32"),
        (["--", "nginx"], "nginx: is no command line of vLLM"),
    ],
)
def test_what_is_missing_is_asked_for(capsys: pytest.CaptureFixture[str], more: list[str], message: str) -> None:
    assert cli.main([*MODEL, *more], {}) == 1
    assert message in capsys.readouterr().err
