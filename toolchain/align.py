"""Aligns the modules' versions, so that what several programs share is compiled once: python3 toolchain/align.py

Run it after `go get` moved a pin. The pins of the programs themselves, and Pulumi's own modules, are left alone.

- kube: Kubernetes, Kueue, kwok and etcd have one go.mod, and Kubernetes keeps the versions that it was released with.
- language-python, languages, language-yaml, provider-kubernetes: what they share with the Pulumi CLI is raised to the
  CLI's version.
"""

import json
import os
import re
import subprocess
from pathlib import Path

TOOLCHAIN = Path(__file__).resolve().parent
KUBERNETES = "k8s.io/kubernetes"
OWN = "github.com/pulumi/"
BESIDE_THE_CLI = ("language-python", "languages", "language-yaml", "provider-kubernetes")
HELD = "// What Kubernetes was released with; Kueue, kwok and etcd ask for newer. Written by align.py.\nreplace (\n"


def main() -> None:
    hold(TOOLCHAIN / "kube")
    for folder in BESIDE_THE_CLI:
        while raised := to_raise(TOOLCHAIN / folder):
            go(TOOLCHAIN / folder, "mod", "edit", *(f"-require={path}@{version}" for path, version in raised.items()))
            go(TOOLCHAIN / folder, "list", "-mod=mod", "-deps", "-e", "tool", ".")


def to_raise(folder: Path) -> dict[str, str]:
    """The modules that a folder shares with the Pulumi CLI and requires in an older version: the CLI's versions."""
    here, cli = required(folder / "go.mod"), required(TOOLCHAIN / "pulumi" / "go.mod")
    shared = [path for path in here if path in cli and not path.startswith(OWN)]
    return {path: cli[path] for path in shared if order(here[path]) < order(cli[path])}


def hold(folder: Path) -> None:
    """Rewrites the block of replacements that keeps Kubernetes at the versions of its own go.mod."""
    file = folder / "go.mod"
    before, _, after = file.read_text().partition(HELD)
    file.write_text(before + after.partition(")\n")[2])
    released = required(Path(json.loads(go(folder, "list", "-m", "-json", KUBERNETES))["GoMod"]))
    used = go(folder, "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", *programs(folder))
    lines = [
        f"\t{path} => {path} {released[path]}\n"
        for path, version in sorted(line.split() for line in set(used.splitlines()) if line.count(" ") == 1)
        if path in released and released[path] not in {"v0.0.0", version}
    ]
    file.write_text(file.read_text().rstrip("\n") + f"\n\n{HELD}{''.join(lines)})\n")
    go(folder, "list", "-mod=mod", "-deps", "tool", "./...")  # completes go.sum


def programs(folder: Path) -> list[str]:
    tools = json.loads(go(folder, "mod", "edit", "-json"))["Tool"]
    return [tool["Path"] for tool in tools if tool["Path"].startswith(f"{KUBERNETES}/")]


def required(go_mod: Path) -> dict[str, str]:
    return dict(re.findall(r"^(?:require |\t)(\S+) (v\S+)(?: // indirect)?$", go_mod.read_text(), re.MULTILINE))


def order(version: str) -> tuple[list[int], bool, list[tuple[bool, int, str]]]:
    """Sorts versions as Go does: v1.2.3-rc.1 before v1.2.3, numbers by value."""
    numbers, _, early = version.removeprefix("v").partition("+")[0].partition("-")
    parts = [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in early.split(".")]
    return [int(number) for number in numbers.split(".")], not early, parts


def go(folder: Path, *arguments: str) -> str:
    env = {**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}
    command = ["go", *arguments]
    done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    main()
