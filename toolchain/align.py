"""Writes the `replace` lines of kube/go.mod: python3 toolchain/align.py

Kubernetes, Kueue, kwok and etcd share kube/go.mod. The Kubernetes release requires older modules than Kueue, kwok and
etcd. The `replace` lines keep the module versions of the Kubernetes release. Run `toolchain/align.py` after `go get`
has changed a version in kube/go.mod.
"""

import json
import os
import re
import subprocess
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "kube"
KUBERNETES = "k8s.io/kubernetes"
HELD = "// What Kubernetes was released with; Kueue, kwok and etcd ask for newer. Written by align.py.\nreplace (\n"


def main() -> None:
    file = FOLDER / "go.mod"
    before, _, after = file.read_text().partition(HELD)
    file.write_text(before + after.partition(")\n")[2])
    go_mod = Path(json.loads(run_go("list", "-m", "-json", KUBERNETES))["GoMod"])
    released = dict(re.findall(r"^(?:require |\t)(\S+) (v\S+)(?: // indirect)?$", go_mod.read_text(), re.MULTILINE))
    tools = [tool["Path"] for tool in json.loads(run_go("mod", "edit", "-json"))["Tool"]]
    programs = [path for path in tools if path.startswith(f"{KUBERNETES}/")]
    used = run_go("list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", *programs)
    lines = [
        f"\t{path} => {path} {released[path]}\n"
        for path, version in sorted(line.split() for line in set(used.splitlines()) if line.count(" ") == 1)
        if path in released and released[path] not in {"v0.0.0", version}
    ]
    file.write_text(file.read_text().rstrip("\n") + f"\n\n{HELD}{''.join(lines)})\n")
    run_go("list", "-mod=mod", "-deps", "tool", "./...")  # completes go.sum


def run_go(*arguments: str) -> str:
    env = {**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}
    command = ["go", *arguments]
    done = subprocess.run(command, cwd=FOLDER, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    main()
