"""Lists the reasons for which tests may be skipped in CI.

In CI, a skip for any other reason is a failure, because it would hide a missing tool.
"""

from collections.abc import Mapping

# Maps the beginning of a skip's reason to the explanation why this skip is allowed in CI.
ALLOWED: Mapping[str, str] = {
    "NO NVIDIA GPU": "hosted runners have none",
    "this machine has an NVIDIA driver": "one with a GPU shows what the others cannot, and the reverse",
    "root lacks CAP_SYS_RESOURCE": "a container's root may lack it, and no test can take it",
    "NO BROWSER": "whether a runner has one, or Debian's packages of one, is its owner's choice",
    "NO NPM": "the project needs no Node.js; whether a runner has it is its owner's choice",
    "this machine has no swap": "whether a runner has any is its owner's choice",
}


def is_allowed(reason: str) -> bool:
    return reason.removeprefix("Skipped: ").startswith(tuple(ALLOWED))


def is_ci(environ: Mapping[str, str]) -> bool:
    return environ.get("CI", "").lower() not in ("", "0", "false")


def refusal(reason: str) -> str:
    """Returns the failure message for a test that was skipped with this reason."""
    return (
        f"{reason}\nIn CI a skip fails unless tests/support/skips.py lists its reason: install what is missing there."
    )
