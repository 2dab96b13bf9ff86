"""Parses the command line of the installer and installs the groups: python3 toolchain/install.py [group ...]"""

import argparse
import math
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolchain.installer.console import say
from toolchain.installer.environment import bring_up_to_date
from toolchain.installer.errors import ToolchainError
from toolchain.installer.store import Store
from toolchain.installer.tool import GoBuild, Tool
from toolchain.installer.tools import GROUPS, go, install_target, tools
from toolchain.installer.ways import Installer

INTERRUPTED = 130
# The minutes that a build of a group's programs takes on two cores; any other group's takes one (toolchain/README.md).
_BUILD_MINUTES = {"preview": 5, "cluster": 5}


def run(checkout: Path, arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="toolchain/install.py",
        description="Puts the pinned tools into .toolchain: from the cache, else the official download, else a build.",
    )
    parser.add_argument("groups", nargs="*", metavar="group", help=f"{', '.join(GROUPS)} (default: preview)")
    groups: list[str] = parser.parse_args(arguments).groups or ["preview"]
    if unknown := [group for group in groups if group not in GROUPS]:
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _install(checkout, groups)
    except (ToolchainError, OSError) as error:  # an OSError can mean a full disk or a read-only folder
        print(f"toolchain: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ntoolchain: interrupted; what was finished is kept, run it again to go on", file=sys.stderr)
        return INTERRUPTED
    return 0


def _install(checkout: Path, groups: list[str]) -> None:
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache = (base if base.is_absolute() else Path.home() / ".cache") / "gpu-tenancy"
    store, target = Store(cache=cache, shelf=checkout / ".toolchain"), install_target(checkout)
    installer = Installer(store, go(target))
    wanted = {group: tools(target, group) for group in groups}
    _announce(store, wanted)
    lacking = [line for found in wanted.values() for line in installer.install(found)]
    if {"python", "preview"} & {*groups}:
        bring_up_to_date(checkout, "requirements.lock")
    if "docs" in groups:
        bring_up_to_date(checkout, "requirements-docs.lock")
    if lacking and os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise ToolchainError("\n".join([*lacking, "CI runs every test: install what is missing, or unset CI."]))
    for line in lacking:
        say(line)
    say(f"toolchain: {' and '.join(groups)} ready")


def _announce(store: Store, wanted: Mapping[str, Sequence[Tool]]) -> None:
    """Says which tools are not in the cache, and how long it takes to get them."""
    absent = {group: [tool for tool in found if not store.holds(tool)] for group, found in wanted.items()}
    names = dict.fromkeys(tool.name for found in absent.values() for tool in found)
    if not names:
        return
    built = [g for g, found in absent.items() if any(isinstance(r, GoBuild) for tool in found for r in tool.recipes)]
    cores = os.cpu_count() or 1
    minutes = math.ceil(sum(_BUILD_MINUTES.get(group, 1) for group in built) * 2 / cores)
    longest = f"a download takes seconds, and a build of all of them about {minutes} min on {cores} cores"
    say(f"toolchain: gets {', '.join(names)}: {longest if built else 'a download takes seconds'}")
