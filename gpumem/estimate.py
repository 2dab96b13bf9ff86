"""Implements `kubectl gpumem estimate`: what a language model needs of GPU memory, by the public formula.

The need is the weights, the KV cache (2 x layers x KV heads x head dimension x bytes x tokens), and what CUDA and the
server's buffers take. The formula is that of a model that keeps keys and values of every token on every layer, so a
model with a sliding window or with compressed attention needs less.
"""

import argparse
import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from agents.runtime.errors import AgentError
from gpumem.paper import Paper, text_of_lines
from gpumem.report import Report
from tenancy.servers import ELEMENT_BYTES, Needs, needs
from tenancy.units import MIB


class EstimateError(AgentError):
    """Raised if a number is missing."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The parts of the need in MiB. `formula` is the product that gives the KV cache in bytes."""

    server: str | None
    weights_mib: int
    kv_cache_mib: int
    overhead_mib: int
    gpumem_mib: int
    formula: str
    gpu_part: str


def report(given: argparse.Namespace) -> Report:
    """Returns the estimate for the flags, and for the server's own flags after `--`. Raises EstimateError."""
    line = " ".join(word if re.fullmatch(r"\w+=[\w.:/-]*", word) else shlex.quote(word) for word in given.server)
    read = next(needs({"command": ["sh", "-c", line]}), None) if given.server else Needs("")
    if read is None:
        raise EstimateError(f"{line}: is no command line of vLLM, SGLang, llama.cpp or Ollama")
    context = given.context or read.context
    if context is None:
        raise EstimateError("say how many tokens all requests have at once: --context, or the server's own flag")
    if given.kv_type is not None and given.kv_type not in ELEMENT_BYTES:
        raise EstimateError(f"--kv-type {given.kv_type}: must be one of {', '.join(ELEMENT_BYTES)}")
    element = ELEMENT_BYTES[given.kv_type] if given.kv_type else read.element_bytes or Fraction(2)
    on_gpu = min(given.layers, given.layers if read.gpu_layers is None else read.gpu_layers)
    tokens = context * given.parallel
    kv_bytes = 2 * on_gpu * given.kv_heads * given.head_dim * element * tokens
    weights = math.ceil(Fraction(given.weights * on_gpu, given.layers))
    kv_mib = math.ceil(kv_bytes / MIB)
    found = Estimate(
        server=read.server or None,
        weights_mib=weights,
        kv_cache_mib=kv_mib,
        overhead_mib=given.overhead,
        gpumem_mib=weights + kv_mib + given.overhead,
        formula=f"2 x {on_gpu} layers x {given.kv_heads} KV heads x {given.head_dim} x {float(element):g} bytes x "
        f"{tokens} tokens",
        gpu_part=f"{on_gpu} of {given.layers} layers",
    )
    return Report("estimate", found, estimate_text)


@text_of_lines
def estimate_text(found: Estimate, paper: Paper) -> Iterator[str]:
    rows = (
        ("weights", str(found.weights_mib), found.gpu_part),
        ("KV cache", str(found.kv_cache_mib), found.formula),
        ("CUDA, buffers", str(found.overhead_mib), "assumed; --overhead"),
        ("together", str(found.gpumem_mib), f"gpumem_mib: {found.gpumem_mib}"),
    )
    yield from paper.table(("PART", "MIB", "FROM"), rows)
