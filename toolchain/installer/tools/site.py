"""Where the tools are for, and what every group's list needs."""

import platform
from dataclasses import dataclass
from pathlib import Path

from toolchain.installer.errors import ToolchainError
from toolchain.installer.pins import Module

GITHUB = "https://github.com"
KUEUE = "sigs.k8s.io/kueue"
ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class Site:
    """A checkout on a kind of machine."""

    checkout: Path
    system: str  # linux, darwin
    architecture: str  # amd64, arm64

    @property
    def platform(self) -> str:
        return f"{self.system}-{self.architecture}"

    def module(self, folder: str) -> Module:
        return Module(self.checkout / "toolchain" / folder)


def site_of(checkout: Path) -> Site:
    system, machine = platform.system().lower(), platform.machine().lower()
    if system not in {"linux", "darwin"} or machine not in ARCHITECTURES:
        raise ToolchainError(f"the tools are for Linux and macOS on amd64 and arm64; this is {system} on {machine}")
    return Site(checkout, system, ARCHITECTURES[machine])


def exactly(found: str, wanted: str) -> bool:
    return found == wanted


def bare(version: str) -> str:
    return version.removeprefix("v")
