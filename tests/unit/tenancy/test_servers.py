"""Tests what is read from the command lines of model servers."""

from fractions import Fraction
from typing import Any

import pytest

from policy.unknown import Unknown
from tenancy.servers import CHECKED, Needs, claims, needs
from tests.support.servers import REAL

VLLM = ["vllm", "serve", "m"]
OF_THE_ENVIRONMENT = {"valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}


def said(container: Any) -> list[str]:
    return [f"{each.server} {'<=' if each.is_at_most else ''}{each.given}" for each in claims(container)]


def shell(line: str, **more: Any) -> dict[str, Any]:
    return {"command": ["sh", "-c", line], **more}


def test_the_real_command_lines_are_sixty_or_more_of_twenty_repositories() -> None:
    assert len(REAL) >= 60
    assert len({each["repo"] for each in REAL}) >= 20


@pytest.mark.parametrize("case", REAL, ids=[f"{n} {each['repo']}" for n, each in enumerate(REAL)])
def test_a_real_command_line_claims_what_its_server_takes(case: dict[str, Any]) -> None:
    assert said(case["container"]) == case["claims"]


SPELLED = {
    "flag=value": {"command": VLLM, "args": ["--gpu-memory-utilization=0.5"]},
    "flag value": {"command": VLLM, "args": ["--gpu-memory-utilization", "0.5"]},
    "underscores": {"command": VLLM, "args": ["--gpu_memory_utilization", "0.5"]},
    "the last of two": {"command": VLLM, "args": ["--gpu-memory-utilization=0.9", "--gpu-memory-utilization=0.5"]},
    "a shell string": shell("sleep 1 && exec vllm serve m \\\n  --gpu-memory-utilization 0.5 > log 2>&1"),
    "a login shell": {"command": ["/bin/bash"], "args": ["-lc", "vllm serve m --gpu-memory-utilization=.5"]},
    "another program": {"command": ["python3", "serve.py", "--gpu-memory-utilization", "0.5"]},
    "Kubernetes' variable": {
        "command": [*VLLM, "--gpu-memory-utilization=$(SHARE)"],
        "env": [{"name": "SHARE", "value": "0.5"}],
    },
    "the shell's variable": shell('export SHARE=0.5; vllm serve m --gpu-memory-utilization "$SHARE"'),
    "the container's variable": shell(
        "vllm serve m --gpu-memory-utilization ${SHARE}", env=[{"name": "SHARE", "value": "0.5"}]
    ),
}


@pytest.mark.parametrize("case", SPELLED)
def test_a_flag_is_read_in_every_spelling(case: str) -> None:
    (claim,) = claims(SPELLED[case])
    assert (claim.server, claim.share) == ("vLLM", Fraction(1, 2))


NO_CLAIM: dict[str, Any] = {
    "nothing": {},
    "an unknown command": {"command": Unknown("command")},
    "an unknown word": {"command": [*VLLM, Unknown("x")]},
    "an unknown value": {"command": [*VLLM, "--gpu-memory-utilization", Unknown("x")]},
    "unknown variables": {"command": [*VLLM, "--gpu-memory-utilization=$(A)"], "env": Unknown("env")},
    "a variable of a ConfigMap": shell("vllm serve m $ARGS", env=[{"name": "ARGS", **OF_THE_ENVIRONMENT}]),
    "all arguments": shell('vllm serve "$@"'),
    "a substitution": shell("vllm serve m $(cat flags)"),
    "a file of flags": {"command": [*VLLM, "--config", "vllm.yaml"]},
    "no number": {"command": [*VLLM, "--gpu-memory-utilization", "most"]},
    "more than the card": {"command": [*VLLM, "--gpu-memory-utilization", "1.5"]},
    "an encoder": {"command": [*VLLM, "--task", "embed"]},
    "a CPU": {"command": [*VLLM, "--device", "cpu"]},
    "a benchmark": shell("vllm bench serve --model m"),
    "an echo": shell('echo "starting vllm serve m"'),
    "a here-document": shell("cat <<EOF > c\nvllm serve m\nEOF\nvllm serve m --config c"),
    "an unquoted echo": shell("echo vllm serve m"),
    "a variable that a file replaces": shell("U=0.9; U=$(cat u); vllm serve m --gpu-memory-utilization $U"),
    "a variable that is read": shell("U=0.9; read U; vllm serve m --gpu-memory-utilization $U"),
    "a size of 5000 digits": {"command": ["tritonserver", f"--cuda-memory-pool-byte-size=0:{'9' * 5000}"]},
    "quotes without an end": shell("vllm serve 'm"),
    "another program of an image": {"image": "vllm/vllm-openai:v0.10.0", "command": ["sleep", "infinity"]},
    "SGLang's default": {"command": ["python3", "-m", "sglang.launch_server", "--model-path", "m"]},
    "TensorFlow that grows": {
        "command": ["tensorflow_model_server"],
        "env": [{"name": "TF_FORCE_GPU_ALLOW_GROWTH", "value": "true"}],
    },
    "TensorFlow with unknown variables": {"command": ["tensorflow_model_server"], "envFrom": [{}]},
    "JAX that takes what it needs": {
        "env": [
            {"name": "XLA_CLIENT_MEM_FRACTION", "value": "0.9"},
            {"name": "XLA_PYTHON_CLIENT_ALLOCATOR", "value": "platform"},
        ]
    },
    "llama.cpp": {"command": ["llama-server", "-c", "8192", "-ngl", "99"]},
}


@pytest.mark.parametrize("case", NO_CLAIM)
def test_what_is_not_known_is_no_claim(case: str) -> None:
    assert said(NO_CLAIM[case]) == []


@pytest.mark.parametrize(
    ("container", "mib"),
    [
        ({"command": [*VLLM, "--kv-cache-memory-bytes", "4G", "--gpu-memory-utilization", "0.9"]}, 4096),
        ({"command": [*VLLM, "--kv-cache-memory-bytes=4194304k"]}, 4000),
        ({"command": ["tritonserver", "--cuda-memory-pool-byte-size", "0:6442450944"]}, 6144),
        ({"command": ["tritonserver", "--backend-config=tensorflow,gpu-memory-fraction=0.5"]}, 5000),
        ({"command": ["tensorflow_model_server"]}, 8200),
        (
            {"env": [{"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "backend:native,per_process_memory_fraction:0.3"}]},
            3000,
        ),
        ({"env": [{"name": "XLA_PYTHON_CLIENT_MEM_FRACTION", "value": ".4"}]}, 4000),
    ],
)
def test_a_claim_is_in_mib_of_the_card(container: dict[str, Any], mib: int) -> None:
    (claim,) = claims(container)
    assert int(claim.of_card_mib(10_000)) == mib
    assert claim.server.removesuffix("'s TensorFlow") in CHECKED


@pytest.mark.parametrize(("budget", "card"), [(5000, 15_360), (100, 81_559), (1, 15_360), (15_360, 15_360), (700, 700)])
def test_the_value_to_write_is_within_the_budget(budget: int, card: int) -> None:
    (claim,) = claims({"command": VLLM})
    flag, value = claim.written(budget, card).split()
    followed = claims({"command": [*VLLM, flag, value]})
    assert all(each.of_card_mib(card) <= budget for each in followed)
    assert followed or budget == 1


def test_what_multiplies_the_need_of_a_model_is_read() -> None:
    llama = {"command": ["llama-server", "-c", "8192", "--n-gpu-layers", "20", "-ctk", "q8_0", "-ctv", "q4_0"]}
    ollama = {
        "image": "docker.io/ollama/ollama:0.32.15",
        "env": [
            {"name": "OLLAMA_CONTEXT_LENGTH", "value": "8192"},
            {"name": "OLLAMA_NUM_PARALLEL", "value": "4"},
            {"name": "OLLAMA_KV_CACHE_TYPE", "value": "q8_0"},
        ],
    }
    assert [*needs(llama)] == [Needs("llama.cpp", 8192, Fraction(26, 32), 20)]
    assert [*needs(ollama)] == [Needs("Ollama", 32_768, Fraction(34, 32))]
    assert [*needs({"command": [*VLLM, "--max-model-len=4096", "--kv-cache-dtype=fp8"]})] == [
        Needs("vLLM", 4096, Fraction(1))
    ]
