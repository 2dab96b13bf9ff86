"""Lists the equivalent mutants and the mutants that break no promise. A person gave the reason for each."""

from collections.abc import Mapping

_COMMANDS = "Agents do not use this code. Previews, policies and `kubectl gpumem` use it, and have their own tests."
_CONNECTIONS = "The simulation replaces threads and connections. `tests/integration/agents` uses real ones."
_TEXT = "Only a log line or a digit of a metric differs."

# For each equivalent mutant: the reason why it gives the same results.
EQUIVALENT: Mapping[str, str] = {
    "3589e930": "The set of failed states only saves time. The search finds the same seats without the set.",
    "518157f3": "A device without a bound ends the round earlier, and `0 or 0` is 0.",
    "92c149ea": "All shortages in the list belong to one node, and a node has one pool.",
    "ad61a503": "The sum only leaves out devices that cannot help. The search rejects the other devices.",
    "b746ce02": "At 0 seconds, the last line also returns `run_seconds`.",
    "d3b3613b": "The cache first creates the NodeInfo of each changed node. So `nodes` has all these names.",
    "e337cfa2": "The kernel switches TCP_NODELAY on for every number except 0.",
}
# For each mutant that breaks no promise: the reason why no promise of the simulation needs this code.
NO_PROMISE: Mapping[str, str] = {
    "001d0612": "Only administrators and agents write times into the ledger and the journals.",
    "008a28e6": _COMMANDS,
    "0477a9a5": _CONNECTIONS,
    "04f6a373": _COMMANDS,
    "0642cf92": _COMMANDS,
    "2150c317": _CONNECTIONS,
    "274f0fb7": "An acting gate writes the generation again before its next act. An observing gate does not use it.",
    "2d61cdbe": _COMMANDS,
    "452cba86": "The watchdog only writes the same journal a second time.",
    "469f5882": _COMMANDS,
    "48eb1cd6": _CONNECTIONS,
    "4bf5fbe6": _COMMANDS,
    "4cc39073": _COMMANDS,
    "55d51bff": _COMMANDS,
    "6632a98c": "No simulated agent starts by the command line of the image.",
    "6b7d12aa": _COMMANDS,
    "6c24567e": _COMMANDS,
    "7c597062": _TEXT,
    "83843606": "The API server stores extended resources as whole numbers, so agents never read such a quantity.",
    "8e041d7e": _COMMANDS,
    "8f36c950": _COMMANDS,
    "92fa89eb": _CONNECTIONS,
    "a1af1719": _TEXT,
    "a2a5148c": _COMMANDS,
    "a2ffa71a": _CONNECTIONS,
    "a7546274": "A whole pod can only request CPU and host memory. The simulation makes no promise about them.",
    "aa3cc18f": _CONNECTIONS,
    "ba921773": _CONNECTIONS,
    "bf2722ab": _COMMANDS,
    "e0faa8da": _COMMANDS,
    "f86c9aa4": "The score only orders devices. All of these devices are allowed.",
    "f9917a37": _COMMANDS,
    "ffcae659": _COMMANDS,
}
