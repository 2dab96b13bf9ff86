"""Lists the permitted reasons for skipping a test in CI. A test that is skipped for another reason fails."""

from collections.abc import Mapping

# Maps the start of each permitted reason to an explanation.
ALLOWED: Mapping[str, str] = {
    "NO NVIDIA GPU": "hosted runners have none",
    "this machine has an NVIDIA driver": "one with a GPU shows what the others cannot, and the reverse",
    "root lacks CAP_SYS_RESOURCE": "a container's root may lack it, and no test can take it",
    "NO NPM REGISTRY": "whether a runner reaches it is its owner's choice",
    "this machine has no swap": "whether a runner has any is its owner's choice",
}


def is_allowed(reason: str) -> bool:
    return reason.removeprefix("Skipped: ").startswith(tuple(ALLOWED))


def is_ci(environ: Mapping[str, str]) -> bool:
    return environ.get("CI", "").lower() not in ("", "0", "false")


def refusal(reason: str) -> str:
    return (
        f"{reason}\nIn CI a skip fails unless tests/support/skips.py lists its reason: install what is missing there."
    )
