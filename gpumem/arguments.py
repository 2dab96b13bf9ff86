"""Defines the command line: the subcommands, their flags, and the values and examples of the flags.

This module imports few other modules, so that the command starts fast.
"""

import argparse
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from agents.kube.kubectl import seconds
from gpumem.version import VERSION
from tenancy import quantity
from tenancy.names import SYSTEM_NAMESPACE
from tenancy.units import MIB

# The default values of the flag --days.
ADVISE_DAYS, HOST_MEMORY_DAYS, INIT_DAYS = 28, 7, 28
# The values of the flag --sort-by.
SORTED = ("declared", "used", "over", "waste", "name")
# The command passes the following flags on to kubectl.
CONNECTION = {
    "context": "the kubeconfig's context to use",
    "cluster": "the kubeconfig's cluster to use",
    "user": "the kubeconfig's user to use",
    "kubeconfig": "the kubeconfig's path",
    "as": "a user to impersonate",
    "as-group": "a group to impersonate; may be given several times",
    "request-timeout": "how long to wait for the API server, such as 5s; default: 10s",
}

WHO = """examples:
  kubectl gpumem who                     everything
  kubectl gpumem who -n immich           one namespace's pods
  kubectl gpumem who --pool t4 --watch   one pool, every two seconds
  kubectl gpumem who --sort-by waste     the pods that use least of their memory first
  kubectl gpumem who --since 7d --from http://localhost:9090
  kubectl gpumem who -o json | jq '.nodes[].devices[] | {uuid, free_mib}'
  kubectl gpumem who -o json | jq '[.pools[].largest_free_mib] | max'
"""
STATUS = """examples:
  kubectl gpumem status                  one screen: the ledger, the agents, the pools and the queues
  kubectl gpumem status --watch
  kubectl gpumem status -o json | jq '.parts[] | select(.state != "well")'
"""
WHY = """examples:
  kubectl gpumem why -n immich immich-ml-5d8f7c-x2x9w
  kubectl gpumem why -n tts deployment/tts
  kubectl gpumem why -n team-a raycluster/train
  kubectl gpumem why -n team-a job/train -o json | jq -r '.answers[].reason'
"""
BOARD = """examples:
  kubectl gpumem board                   prints the URL of a page on this machine
  kubectl gpumem board --port 8800 -n immich
"""
CHANGES = """examples:
  kubectl gpumem changes                     the last 24 hours
  kubectl gpumem changes --since 2h -n immich
  kubectl gpumem changes -o json | jq '.changes[] | select(.what == "GpuMemoryRecycled")'
"""
FIT = """examples:
  kubectl gpumem fit 4000                            one device with 4000 MiB, in any pool
  kubectl gpumem fit 4000 --pool t4 --replicas 2
  kubectl gpumem fit 40000 --gpu-count 8             8 devices of one node, 40000 MiB of each
  kubectl gpumem fit 3000 -o json | jq '.pools[0].devices.changes'
  kubectl gpumem fit 4000 --stack prod               of a stack file, with what to write into it
  kubectl gpumem fit 4000 --stack prod --live        and on the cluster's devices
  kubectl gpumem fit --without k8s-node1/0           as if device 0 of this node failed
  kubectl gpumem fit --without k8s-node1 && kubectl drain k8s-node1 --ignore-daemonsets
"""
BILL = """examples:
  kubectl gpumem bill --from http://localhost:9090 --currency EUR
  kubectl gpumem bill --from http://localhost:9090 --currency EUR --month 2026-11 -o csv > 2026-11.csv
"""
ADVISE = """examples:
  kubectl -n monitoring port-forward svc/prometheus-operated 9090 &
  kubectl gpumem advise --from http://localhost:9090
  kubectl gpumem advise --from http://localhost:9090 --stack prod
  kubectl gpumem advise --from http://localhost:9090 --stack prod -o json | jq -j .patch | git apply
  kubectl gpumem advise --from http://localhost:9090 --stack prod --host-memory
"""
ESTIMATE = """examples:
  kubectl gpumem estimate --weights 4.9Gi --context 8192 --layers 32 --kv-heads 8 --head-dim 128
  kubectl gpumem estimate --weights 4.9Gi --layers 32 --kv-heads 8 --head-dim 128 -- llama-server -c 8192 -ctk q8_0
"""
INIT = """examples:
  kubectl gpumem init --stack mine                                 writes Pulumi.mine.yaml into this folder
  kubectl gpumem init --stack mine --from http://localhost:9090    with budgets from measured peaks
  kubectl gpumem init --stack mine --from-git ../home-ops            from a folder of manifests, without a cluster
  kubectl gpumem init --stack mine --overwrite
"""


class _Parser(argparse.ArgumentParser):
    """A parser that answers a wrong command with one sentence, and not with all its flags."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"gpumem: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """Returns the parser for all subcommands and their flags."""
    top = _Parser(
        prog="kubectl gpumem",
        description="Show the use of GPU memory, the free memory and the reasons why pods wait. Propose budgets, and "
        "show costs.",
        epilog="exit codes: 0 done, 1 failed, 2 wrong command; 3 of why: something does not run; of advise: a budget "
        "is too small; of fit: it does not fit now; of status: a part does not work; 4 of status: a part is starting; "
        "5 of status: the state of a part is not known",
    )
    top.add_argument("--version", action="version", version=f"kubectl-gpumem {VERSION}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    _of_the_cluster(verbs)
    _of_a_history(verbs)
    _before_a_rollout(verbs)
    return top


def _of_the_cluster(verbs: Any) -> None:
    found = _verb(
        verbs,
        "who",
        "show the free memory, the pods on each device with their memory, and the waiting pods",
        WHO,
    )
    found.add_argument("--node", help="only this node")
    found.add_argument("--pool", help="only this pool")
    found.add_argument("-l", "--selector", help="only pods with these labels, such as app=ml,stage!=test")
    found.add_argument(
        "--sort-by",
        choices=SORTED,
        help="show one list of the pods on all devices; waste is the declared memory that a pod does not use",
    )
    found.add_argument(
        "--since",
        type=_days,
        metavar="DAYS",
        help="show which seats wasted most over so many days, such as 7d; needs --from",
    )
    found.add_argument("--from", dest="source", help="URL of Prometheus, or path of a CSV file; needs --since")
    _access(found)
    found.set_defaults(refuse=found.error)
    _no_headers(found)
    _watch(found)
    found = _verb(verbs, "why", "explain why a pod or the pods of a workload do not run", WHY)
    found.add_argument("target", metavar="POD | deployment/NAME | job/NAME | jobset/NAME | ...")
    found = _cluster_verb(verbs, "status", "show if each part of the platform works", STATUS)
    _no_headers(found)
    _system_namespace(found)
    _watch(found)
    found = _verb(verbs, "board", "serve a read-only web page with these reports on this machine", BOARD)
    found.add_argument("--port", type=_whole(65535, 0), default=0, help="port on 127.0.0.1; default: a free port")
    found.add_argument("--interval", type=_whole(3600), default=5, help="seconds between two readings; default: 5")
    found = _verb(verbs, "changes", "show what the platform did, the newest last", CHANGES)
    found.add_argument("--since", type=_duration, default="24h", help="how far to look back, such as 2h; default: 24h")
    found.add_argument("--pool", help="only this pool")
    _no_headers(found)
    found = _verb(verbs, "fit", "show where new pods fit, or the smallest change after which they fit", FIT)
    found.add_argument(
        "mib",
        metavar="MIB",
        type=_mib,
        nargs="?",
        help="memory that a pod needs on each of its devices: 4000 (MiB) or 4Gi",
    )
    found.add_argument("--pool", help="only this pool")
    found.add_argument("--replicas", type=_whole(10_000), default=1, help="number of pods; default: 1")
    found.add_argument(
        "--gpu-count", type=_whole(10_000), default=1, help="number of devices of a pod, all on one node; default: 1"
    )
    found.add_argument(
        "--tenant", help="tenant of the pods; if the tenant has a seat of exactly MIB, no new promise is needed"
    )
    _stack(found)
    found.add_argument("--live", action="store_true", help="with --stack, also judge the devices of the cluster")
    found.add_argument(
        "--without",
        metavar="NODE[/GPU]",
        help="instead of new pods, judge if all pods of NODE, or of its device GPU, fit on the rest of the pool, and "
        "all promises without it",
    )
    found.set_defaults(refuse=found.error)


def _of_a_history(verbs: Any) -> None:
    found = _verb(
        verbs, "advise", "propose budgets from a history of use, with the risk that the use exceeds a budget", ADVISE
    )
    _history(found)
    found.add_argument(
        "--host-memory", action="store_true", help="judge the stack's memory pools instead of its GPU seats"
    )
    days = f"days of history; default: {ADVISE_DAYS}, or {HOST_MEMORY_DAYS} if --host-memory is given"
    found.add_argument("--days", type=_whole(9999), help=days)
    found = _verb(verbs, "bill", "show the seats, the use and the cost of each tenant in a month", BILL, ("csv",))
    _history(found)
    found.add_argument("--month", help="month in UTC, such as 2026-11; default: the last complete month")
    found.add_argument("--currency", type=_currency, help="currency of the pools' prices, such as EUR")
    found.add_argument(
        "--price",
        action="append",
        type=_price,
        default=[],
        dest="prices",
        metavar="POOL=PRICE",
        help="price of a GiB-hour in a pool that is no longer in the ledger, such as old=0.1; once for each pool",
    )


def _before_a_rollout(verbs: Any) -> None:
    found = _cluster_verb(
        verbs, "init", "propose a stack file for this cluster, and change nothing in the cluster", INIT
    )
    found.add_argument("--stack", required=True, help="name of the stack; writes Pulumi.STACK.yaml into this folder")
    found.add_argument("--from", dest="source", help="URL of Prometheus, for budgets from measured peaks")
    found.add_argument("--from-git", metavar="DIR", help="a folder of manifests (Flux, Argo CD, plain) and no cluster")
    _access(found)
    found.add_argument("--days", type=_whole(9999), default=INIT_DAYS, help=f"days of history; default: {INIT_DAYS}")
    found.add_argument("--overwrite", action="store_true", help="replace an existing file")
    found = _plain(verbs, "estimate", "compute what a language model needs, from its size and context", ESTIMATE)
    found.add_argument("--weights", type=_size, required=True, help="size of the model's file: 5018 (MiB) or 4.9Gi")
    for flag, meaning in {
        "layers": "number of the model's layers (num_hidden_layers of its config.json)",
        "kv-heads": "number of its key and value heads (num_key_value_heads)",
        "head-dim": "dimension of a head (head_dim, or hidden_size / num_attention_heads)",
    }.items():
        found.add_argument(f"--{flag}", type=_whole(2**20), required=True, help=meaning)
    found.add_argument("--context", type=_whole(2**31), help="tokens of a request; default: the server's own flag")
    found.add_argument("--parallel", type=_whole(10_000), default=1, help="requests at once; default: 1")
    found.add_argument("--kv-type", help="type of the KV cache, such as q8_0; default: the server's, or f16")
    found.add_argument("--overhead", type=_whole(2**24, 0), default=512, help="MiB of CUDA and buffers; default: 512")
    found.add_argument("server", nargs="*", metavar="-- SERVER", help="command line of vLLM, SGLang, llama.cpp, Ollama")


def verb_first(top: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """Returns the arguments with the verb at the start. kubectl's users also write flags before the verb."""
    verbs: Any = next(action.choices for action in top._actions if action.choices)  # noqa: SLF001 (argparse lists them nowhere else)
    flags = [action for verb in verbs.values() for action in verb._actions if action.nargs != 0]  # noqa: SLF001 (as above)
    takes_value = {name for flag in flags for name in flag.option_strings}
    words = enumerate(arguments)
    at = next((n for n, word in words if word in verbs and (n == 0 or arguments[n - 1] not in takes_value)), None)
    if at is None or arguments[0] in ("-h", "--help", "--version"):
        return [*arguments]
    return [arguments[at], *arguments[:at], *arguments[at + 1 :]]


def _plain(verbs: Any, name: str, text: str, examples: str, more: Sequence[str] = ()) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if name != "board":
        made.add_argument(
            "-o", "--output", choices=("text", "json", "yaml", *more), default="text", help="default: text"
        )
    return made


def _verb(verbs: Any, name: str, text: str, examples: str, more: Sequence[str] = ()) -> argparse.ArgumentParser:
    made = _cluster_verb(verbs, name, text, examples, more)
    namespaces = made.add_mutually_exclusive_group()
    namespaces.add_argument(
        "-n",
        "--namespace",
        help="show only pods of this namespace; needed if you may not read pods of other namespaces",
    )
    if name != "why":
        namespaces.add_argument(
            "-A", "--all-namespaces", action="store_true", help="show pods of all namespaces, as is the default"
        )
    _system_namespace(made)
    return made


def _system_namespace(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--system-namespace",
        default=SYSTEM_NAMESPACE,
        help=f"namespace of the ledger ConfigMap; default: {SYSTEM_NAMESPACE}",
    )


def _cluster_verb(verbs: Any, name: str, text: str, examples: str, more: Sequence[str] = ()) -> argparse.ArgumentParser:
    made = _plain(verbs, name, text, examples, more)
    add_connection(made)
    return made


def add_connection(made: argparse.ArgumentParser) -> None:
    """Adds the flags that the command passes on to kubectl."""
    connection = made.add_argument_group("connection, as kubectl has it")
    for flag, meaning in CONNECTION.items():
        kind = _duration if flag == "request-timeout" else str
        connection.add_argument(f"--{flag}", action="append", type=kind, help=meaning, metavar=flag.upper())


def _history(made: argparse.ArgumentParser) -> None:
    made.add_argument("--from", dest="source", required=True, help="URL of Prometheus, or path of a CSV file")
    _access(made)
    _stack(made)


def _access(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--match",
        action="append",
        type=_matcher,
        default=[],
        dest="matchers",
        metavar="LABEL=VALUE",
        help="only series with this label, such as cluster=prod",
    )
    made.add_argument("--bearer-token-file", type=Path, help="file with a token for Prometheus")
    made.add_argument(
        "--header",
        action="append",
        type=_header,
        default=[],
        dest="headers",
        metavar="NAME: VALUE",
        help="header for Prometheus, such as 'X-Scope-OrgID: prod'",
    )
    made.add_argument("--ca-file", type=Path, help="file with the CA of Prometheus, in PEM")


def _stack(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--stack", help="NAME of Pulumi.NAME.yaml, or path of a stack file; default: the cluster's ledger"
    )


def _no_headers(made: argparse.ArgumentParser) -> None:
    made.add_argument("--no-headers", action="store_true", help="print tables without their headers")


def _watch(made: argparse.ArgumentParser) -> None:
    made.add_argument("-w", "--watch", action="store_true", help="repeat the report until it is interrupted")
    made.add_argument("--interval", type=_whole(3600), default=2, help="seconds between two reports; default: 2")


def _whole(most: int, least: int = 1) -> Callable[[str], int]:
    def parsed(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number from {least} to {most}")
        return int(text)

    return parsed


def _mib(text: str) -> int:
    if text.isascii() and text.isdecimal():
        return _whole(2**24)(text)
    if not text.endswith("i"):
        raise argparse.ArgumentTypeError(f"{text!r}: must be whole MiB, such as 4000, or end in Mi or Gi, such as 4Gi")
    try:
        mib = quantity.parse(text) / MIB
    except quantity.QuantityError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if mib.denominator != 1 or not 1 <= mib <= 2**24:
        raise argparse.ArgumentTypeError(f"{text!r}: must be whole MiB, from 1Mi to {2**24}Mi")
    return int(mib)


def _size(text: str) -> int:
    """Returns MiB, rounded up."""
    try:
        mib = quantity.parse(text) if text.isdecimal() else quantity.parse(text) / MIB
    except quantity.QuantityError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 1 <= mib <= 2**24:
        raise argparse.ArgumentTypeError(f"{text!r}: must be from 1Mi to {2**24}Mi, such as 4.9Gi")
    return math.ceil(mib)


def _duration(text: str) -> str:
    try:
        seconds(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a duration, such as 5s or 1m") from None
    return text


def _days(text: str) -> int:
    found = re.fullmatch("([0-9]{1,4})d?", text, re.ASCII)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r}: must be whole days, such as 7d")
    return int(found[1])


def _currency(text: str) -> str:
    if not re.fullmatch("[A-Z]{3}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a code of ISO 4217, such as EUR")
    return text


def _matcher(text: str) -> str:
    label, found, value = text.partition("=")
    if not found or not re.fullmatch(r"[A-Za-z_]\w*", label, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a label and its value, such as cluster=prod")
    return f"{label}={json.dumps(value)}"


def _header(text: str) -> tuple[str, str]:
    name, found, value = text.partition(":")
    if not found or not re.fullmatch(r"[\w-]+", name, re.ASCII) or not value.isprintable():
        raise argparse.ArgumentTypeError("a header must be NAME: VALUE, such as X-Scope-OrgID: prod")
    return name, value.strip()


def _price(text: str) -> tuple[str, float]:
    found = re.fullmatch(r"([^=]+)=(\d+(?:\.\d+)?)", text, re.ASCII)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a pool and its price, such as old=0.1")
    return found[1], float(found[2])
