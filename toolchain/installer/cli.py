"""Parses the command line of the installer and installs the groups: python3 toolchain/install.py [group ...]"""

import argparse
import os
import signal
import sys
from pathlib import Path

from toolchain.installer.console import say
from toolchain.installer.environment import bring_up_to_date
from toolchain.installer.errors import ToolchainError
from toolchain.installer.store import Store
from toolchain.installer.tools import GROUPS, go, install_target, tools
from toolchain.installer.ways import Installer

INTERRUPTED = 130


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
    lacking = [line for group in groups for line in installer.install(tools(target, group))]
    if {"python", "preview"} & {*groups}:
        bring_up_to_date(checkout, "requirements.lock")
    if "docs" in groups:
        bring_up_to_date(checkout, "requirements-docs.lock")
    if lacking and os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise ToolchainError("\n".join([*lacking, "CI runs every test: install what is missing, or unset CI."]))
    for line in lacking:
        say(line)
    say(f"toolchain: {' and '.join(groups)} ready")
