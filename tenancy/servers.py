"""Reads from the command line and the environment of a model server how much GPU memory it will claim.

Only what a flag fixes is a claim: a fraction of the card, or bytes. llama.cpp and Ollama claim what the model needs, so
of them the module reads the numbers from which `kubectl gpumem estimate` computes the need. A flag or a value that the
module does not know is no claim. CHECKED names the versions that the readings were compared with.
"""

import posixpath
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tenancy.units import MIB
from tenancy.workload import Manifest

CHECKED: Mapping[str, str] = {
    "vLLM": "the sources at 002f10e0 (vllm/config/cache.py); releases before pull 38284 have the default 0.9",
    "SGLang": "_profile_available_bytes at 4fa3482, and the same formula in older sources",
    "Triton": "the server at 0299e638 (command_line_parser.cc); README of the TensorFlow backend",
    "TensorFlow": "Serving 2.20 (model_servers/main.cc), MinSystemMemory of TensorFlow 2 (gpu_device.cc)",
    "PyTorch": "c10/cuda/CUDAAllocatorConfig.h, in use with 2.14; an older PyTorch may refuse the option",
    "JAX": "the page GPU memory allocation of July 2026; since jaxlib 0.4.1 the fraction is of the whole card",
    "llama.cpp": "tools/server/README.md at 25d5b0c5; b10236 runs with the same flags",
    "Ollama": "the sources at fb307609 of August 2026 (envconfig/config.go)",
}
_SHELLS = {"sh", "bash", "ash", "dash", "zsh"}
_PRINTING = ("cat", "echo", "grep", "printf")  # commands that take the name of a server for text
_POOLING = {"--task", "--runner", "--convert"}  # vLLM keeps no KV cache for an encoder.
_VLLM = "vLLM"
# vLLM's default was 0.9, and is 0.92 since https://github.com/vllm-project/vllm/pull/38284.
_VLLM_DEFAULT = Fraction(9, 10)
# TensorFlow leaves free at most this much for libraries (MinSystemMemory in common_runtime/gpu/gpu_device.cc).
_TENSORFLOW_LEAVES_MIB = 1800
# Bytes of one element of the KV cache. A block of 32 elements has one more half float, or two (ggml-common.h).
ELEMENT_BYTES: Mapping[str, Fraction] = {
    **dict.fromkeys(("f32", "float32"), Fraction(4)),
    **dict.fromkeys(("f16", "bf16", "float16", "bfloat16", "auto"), Fraction(2)),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2"), Fraction(1)),
    "q8_0": Fraction(34, 32),
    "q5_1": Fraction(24, 32),
    "q5_0": Fraction(22, 32),
    "q4_1": Fraction(20, 32),
    "q4_0": Fraction(18, 32),
    "iq4_nl": Fraction(18, 32),
}


@dataclass(frozen=True)
class Claim:
    """What a server takes of each card that it sees: a fraction `share`, or `mib`. `given` is what fixes it, and
    `remedy` is the flag or variable to write, in which {} stands for the value."""

    server: str
    given: str
    remedy: str
    share: Fraction | None = None
    mib: Fraction | None = None
    left_mib: int = 0  # what the server leaves of the fraction
    is_at_most: bool = False  # The server takes the fraction of what is free, or allocates up to it.

    def of_card_mib(self, card_mib: int) -> Fraction:
        """Returns the claim in MiB on a card with this memory."""
        return self.share * card_mib - self.left_mib if self.share is not None else self.mib or Fraction(0)

    def written(self, budget_mib: int, card_mib: int) -> str:
        """Returns the flag with the largest value that stays within the budget."""
        if self.share is None:
            return self.remedy.format(budget_mib * MIB)
        steps = 100 if budget_mib * 100 >= card_mib else 10_000
        value = f"{budget_mib * steps // card_mib / steps:.4f}".rstrip("0").rstrip(".")
        return self.remedy.format(value)


@dataclass(frozen=True)
class Needs:
    """The numbers that multiply a server's need of memory, or None where the command line does not say them."""

    server: str
    context: int | None = None  # tokens of all requests at once
    element_bytes: Fraction | None = None  # of the KV cache
    gpu_layers: int | None = None


@dataclass(frozen=True)
class CommandLine:
    """The words of one command. A word that is not known is None. `is_whole` is True if no unknown word can be a
    flag."""

    words: Sequence[str | None]
    env: Mapping[str, str | None]
    image: str = ""  # whose program runs, or "" if the words name the program
    flags: Mapping[str, list[str | None]] = field(init=False)
    is_whole: bool = field(init=False)

    def __post_init__(self) -> None:
        flags: dict[str, list[str | None]] = {}
        is_whole, words = True, list(self.words)
        while words:
            word = words.pop(0)
            if word is None:
                is_whole = False
            elif re.match("-+[A-Za-z]", word):
                name, given, value = word.partition("=")
                follows = bool(words) and (words[0] is None or not re.match("-+[A-Za-z]", words[0]))
                found: str | None = value if given else words.pop(0) if follows else ""
                flags.setdefault(name.replace("_", "-"), []).append(found)
        object.__setattr__(self, "flags", flags)
        object.__setattr__(self, "is_whole", is_whole)

    def runs(self, *programs: str, image: str = "") -> bool:
        """Returns True if the command starts one of the programs ("vllm serve", "-m module"), or if it leaves the
        program to an image with this name."""
        if self.words and self.words[0] in _PRINTING:
            return False
        text = " ".join("?" if not word or re.search(r"\s", word) else posixpath.basename(word) for word in self.words)
        if any(re.search(rf"(^| ){program}( |$)", text) for program in programs):
            return True
        return bool(image and self.image) and re.search(image, self.image) is not None

    def last(self, *names: str) -> str | None:
        """Returns the value of the last of these flags, or None if no flag is given or the value is not known."""
        return next((self.flags[name][-1] for name in names if name in self.flags), None)

    def has(self, *names: str) -> bool:
        """Returns True if one of the flags is given."""
        return any(name in self.flags for name in names)


def claims(container: Manifest) -> Collection[Claim]:
    """Returns what the servers of a container claim. Raises nothing for any value that a manifest can have."""
    found: list[Claim] = []
    for line in command_lines(container):
        found += (claim for read in (_vllm, _sglang, _triton, _tensorflow, _pytorch, _jax) for claim in read(line))
    return dict.fromkeys(found)


def needs(container: Manifest) -> Iterator[Needs]:
    """Yields what the command lines of a container say of the model's use of memory."""
    for line in command_lines(container):
        if line.runs("llama-server", "llama-cli", image=r"llama\.cpp"):
            yield _llama_cpp(line)
        elif line.runs("ollama serve", image="(^|/)ollama(:|@|$)"):
            yield _ollama(line)
        elif line.runs("vllm serve", r"-m vllm\.\S+", image="(^|/)vllm-openai([:@]|$)"):
            context, element = _whole(line.last("--max-model-len")), line.last("--kv-cache-dtype")
            yield Needs(_VLLM, context, ELEMENT_BYTES.get(element or "auto"))
        elif line.runs(r"-m sglang\.\S+", "sglang serve"):
            context, element = _whole(line.last("--context-length")), line.last("--kv-cache-dtype")
            yield Needs("SGLang", context, ELEMENT_BYTES.get(element or "auto"))


def command_lines(container: Manifest) -> list[CommandLine]:
    """Returns the commands of a container. A shell string has one for each of its commands."""
    env = _environment(container)
    image = container.get("image")
    image = image if type(image) is str else ""
    command, args = (_items(container.get(key)) for key in ("command", "args"))
    given = [*command, *args]
    image = "" if command else image
    shell = next((n for n, word in enumerate(given[:3]) if type(word) is str and re.fullmatch("-[a-z]*c", word)), None)
    if shell is None or type(given[0]) is not str or posixpath.basename(given[0]) not in _SHELLS:
        words = [each for word in given for each in _expanded(word, env, r"\$\((\w+)\)")]
        return [CommandLine(words, env, image)]
    script = next((word for word in given[shell + 1 :] if type(word) is not str or word != "--"), None)
    return [*_shell(script, env)] if type(script) is str else [CommandLine([None], env)]


def _items(value: object) -> Sequence[object]:
    """Returns the items of a list. The items of another value are not known."""
    return value if type(value) in (list, tuple) else () if value is None else [None]  # type: ignore[return-value]


def _environment(container: Manifest) -> dict[str, str | None]:
    """Returns the variables of a container. Other sources than a literal value are not known."""
    found: dict[str, str | None] = {}
    for each in _items(container.get("env")):
        if type(each) is not dict or type(each.get("name")) is not str:
            return _Unknown()
        value = each.get("value", None if "valueFrom" in each else "")
        found[each["name"]] = value if type(value) is str else None
    return found if container.get("envFrom") is None else _Unknown(found)


class _Unknown(dict[str, str | None]):
    """Variables of which others may exist."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> None:
        return None


def _expanded(word: object, env: Mapping[str, str | None], pattern: str) -> list[str | None]:
    """Returns the word with its variables replaced, or None in place of what is not known. `--flag=$VARIABLE` stays a
    flag, with an unknown value."""
    if type(word) is not str:
        return [None]
    values = {name: env.get(name) for name in _names(pattern, word)}
    if None not in values.values() and "$" not in re.sub(pattern, "", word):
        return [re.sub(pattern, lambda found: values[_name(found)] or "", word)]
    flag, _, _ = word.partition("=")
    if "=" in word and re.fullmatch(r"[A-Za-z_]\w*", flag):
        return [f"{flag}=$"]  # an assignment of what is not known
    return [flag, None] if re.fullmatch(r"--?[\w-]+", flag) else [None]


def _names(pattern: str, word: str) -> list[str]:
    return [_name(found) for found in re.finditer(pattern, word)]


def _name(found: "re.Match[str]") -> str:
    return next(group for group in found.groups() if group)


def _shell(script: str, env: dict[str, str | None]) -> Iterator[CommandLine]:
    """Yields the commands of a shell script. A script that shlex cannot read has one unknown command."""
    text = re.sub(r"\$\((\w+)\)", lambda found: env.get(found[1]) or "$?", script)  # Kubernetes replaces them first.
    text = re.sub(r"\$\([^()]*\)|`[^`]*`", "$?", text)
    text = re.sub(r"(?m)(^|[ \t])#.*$", "", text).replace("\\\n", " ")
    reader = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    reader.whitespace, reader.whitespace_split, reader.commenters = " \t\r", True, ""
    words: list[str | None] = []
    try:
        found = ["$", "\n"] if "<<" in text else [*reader, "\n"]  # The text of a here-document is no command.
    except ValueError:
        found = ["$", "\n"]
    redirects = False
    for word in found:
        if word and set(word) <= set("();|&\n"):
            env = _assigned(words, env)
            if words:
                yield CommandLine(words, env)
            words, redirects = [], False
        elif set(word) & set("<>") and set(word) <= set("<>&"):
            redirects = True
        elif redirects:
            redirects = False
        else:
            words += _expanded(word, env, r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))")


def _assigned(words: list[str | None], env: dict[str, str | None]) -> dict[str, str | None]:
    """Returns the variables after the assignments at the start of a command."""
    found = type(env)(env)
    if words[:1] == ["read"]:
        return type(env)({**env, **dict.fromkeys((word for word in words[1:] if word), None)})
    for word in words[1:] if words[:1] in (["export"], ["env"], ["exec"]) else words:
        assigned = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", word or "", re.DOTALL)
        if assigned is None:
            break
        found[assigned[1]] = None if "$" in assigned[2] else assigned[2]
    return found


def _vllm(line: CommandLine) -> Iterator[Claim]:
    """Source: request_memory in vllm/v1/worker/utils.py, and kv_cache_memory_bytes of vllm/config/cache.py, which
    replaces the fraction."""
    flag, of_bytes = "--gpu-memory-utilization", ("--kv-cache-memory-bytes", "--kv-cache-memory")
    if line.last("--device") not in (None, "cuda", "auto"):
        return
    if line.has(*of_bytes):
        given = line.last(*of_bytes)
        if (amount := _human(given)) is not None:
            yield Claim(_VLLM, f"a KV cache of {given} bytes", f"{of_bytes[0]} {{}} or less", mib=amount / MIB)
    elif line.has(flag):
        yield from _share(_VLLM, line.last(flag), f"{flag} {{}}")
    elif (
        line.runs("vllm serve", r"-m vllm\.entrypoints\.(openai\.)?api_server", image="(^|/)vllm-openai([:@]|$)")
        and line.is_whole
        and not line.has("--config", "--help", "-h", *_POOLING)
    ):
        yield Claim(_VLLM, "0.9 (its default)", f"{flag} {{}}", share=_VLLM_DEFAULT)


def _sglang(line: CommandLine) -> Iterator[Claim]:
    """Source: _profile_available_bytes in sglang/srt/model_executor: a fraction of what was free before the weights."""
    names = ("--mem-fraction-static", "--mem-fraction")  # argparse also accepts the beginning of a flag's name.
    if line.last("--device") in (None, "cuda"):
        yield from _share("SGLang", line.last(*names), f"{names[0]} {{}}", is_at_most=True)


def _triton(line: CommandLine) -> Iterator[Claim]:
    """Source: src/command_line_parser.cc; of DEVICE:BYTES, the last one of a device counts."""
    sizes: dict[str, Fraction | None] = {}
    for given in line.flags.get("--cuda-memory-pool-byte-size", ()):
        device, _, size = (given or "").partition(":")
        sizes[device] = Fraction(size) if re.fullmatch("[0-9]{1,18}", size) else None
    known = [size for size in sizes.values() if size is not None]
    if known:
        remedy = "--cuda-memory-pool-byte-size DEVICE:{} or less"
        yield Claim("Triton", f"a pool of {max(known)} bytes", remedy, mib=max(known) / MIB)
    for given in line.flags.get("--backend-config", ()):
        if (given or "").startswith(setting := "tensorflow,gpu-memory-fraction="):
            value = (given or "").removeprefix(setting)
            yield from _share("Triton's TensorFlow", value, f"--backend-config={setting}{{}}")


def _tensorflow(line: CommandLine) -> Iterator[Claim]:
    """Source: tensorflow_serving/model_servers/main.cc; 0 means that TensorFlow maps nearly the whole card."""
    flag = "--per-process-gpu-memory-fraction"
    remedy = "--per_process_gpu_memory_fraction={}"
    given = line.last(flag)
    if given is not None and _fraction(given):
        yield from _share("TensorFlow", given, remedy)
    elif (
        line.runs("tensorflow_model_server", image=r"tensorflow/serving:\S*gpu")
        and (given is not None or not line.has(flag))
        and line.is_whole
        and "TF_FORCE_GPU_ALLOW_GROWTH" not in line.env
    ):
        yield Claim(
            "TensorFlow", "all but what libraries need", remedy, share=Fraction(1), left_mib=_TENSORFLOW_LEAVES_MIB
        )


def _pytorch(line: CommandLine) -> Iterator[Claim]:
    """Source: c10/cuda/CUDAAllocatorConfig.h; the option limits what the allocator takes."""
    for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        found = re.search(r"(?:^|,)\s*per_process_memory_fraction:([0-9.]+)", line.env.get(variable) or "")
        if found:
            remedy = f"per_process_memory_fraction:{{}} in {variable}"
            yield from _share("PyTorch", found[1], remedy, is_at_most=True)
            return


def _jax(line: CommandLine) -> Iterator[Claim]:
    """Source: docs.jax.dev, GPU memory allocation. Without preallocation the fraction is only a limit."""
    env = line.env
    for variable in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        if env.get(variable) and env.get("XLA_PYTHON_CLIENT_ALLOCATOR") != "platform":
            grows = (env.get("XLA_PYTHON_CLIENT_PREALLOCATE") or "true").lower() in ("false", "0")
            yield from _share("JAX", env.get(variable), f"{variable}={{}}", is_at_most=grows)
            return


def _share(server: str, value: str | None, remedy: str, *, is_at_most: bool = False) -> Iterator[Claim]:
    if (share := _fraction(value)) is not None:
        yield Claim(server, str(value), remedy, share=share, is_at_most=is_at_most)


def _fraction(value: str | None) -> Fraction | None:
    """Returns a number above 0 and up to 1, or None for any other text."""
    if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", value or ""):
        return None
    found = Fraction(value or 0)
    return found if 0 < found <= 1 else None


def _human(value: str | None) -> Fraction | None:
    """Source: human_readable_int in vllm/engine/arg_utils.py: 1k is 1000, 1K is 1024."""
    found = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)([kmgtKMGT]?)", value or "")
    if found is None:
        return None
    unit = 1000 if found[2].islower() else 1024
    return Fraction(found[1]) * Fraction(unit ** " kmgt".index(found[2].lower() or " "))


def _llama_cpp(line: CommandLine) -> Needs:
    def given(variable: str, *names: str) -> str | None:
        return line.last(*names) if line.has(*names) else line.env.get(f"LLAMA_ARG_{variable}")

    types = [given("CACHE_TYPE_K", "-ctk", "--cache-type-k"), given("CACHE_TYPE_V", "-ctv", "--cache-type-v")]
    sizes = [ELEMENT_BYTES.get(each or "f16") for each in types]
    known = [size for size in sizes if size is not None]
    layers = _whole(given("N_GPU_LAYERS", "-ngl", "--n-gpu-layers", "--gpu-layers"))
    return Needs(
        "llama.cpp",
        _whole(given("CTX_SIZE", "-c", "--ctx-size")) or None,  # 0 is the context that the model was trained with.
        sum(known, Fraction(0)) / len(known) if len(known) == len(sizes) else None,
        layers,
    )


def _ollama(line: CommandLine) -> Needs:
    """Source: envconfig/config.go; each parallel request has its own context."""
    context, parallel = (_whole(line.env.get(f"OLLAMA_{name}")) for name in ("CONTEXT_LENGTH", "NUM_PARALLEL"))
    kind = line.env.get("OLLAMA_KV_CACHE_TYPE") or "f16"
    return Needs("Ollama", context * (parallel or 1) if context else None, ELEMENT_BYTES.get(kind))


def _whole(value: str | None) -> int | None:
    return int(value or "") if re.fullmatch("[0-9]{1,12}", value or "") else None
