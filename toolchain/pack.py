"""Writes the policy pack as a standalone folder and as an archive (`python -m toolchain.pack FOLDER`).

The folder contains the packages of the rules, and the requirements file that `pulumi install` needs. The names of the
folder and of the archive contain the project's version. Two builds of the same code give the same archive.
"""

import gzip
import io
import shutil
import sys
import tarfile
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("policy", "tenancy")
_NEEDED = ("pulumi", "pulumi-policy", "pyyaml", "setuptools")
_ENVIRONMENT = {"toolchain": "pip", "virtualenv": "venv"}
_README = """# The policy pack of gpu-tenancy {version}

```sh
pulumi install                                   # here, once: it makes the environment, venv
pulumi stack output --stack PLATFORM --json ledger > ledger.json
pulumi preview --policy-pack PATH-OF-THIS-FOLDER --policy-pack-config ledger.json
```

If the program is not the platform's, the pack reads the ledger from this configuration. The key `rules` of the
configuration lowers the level of a rule. Each preview prints the reason:

```json
{{"gpu-tenancy": {{"rules": {{"images": {{"level": "advisory", "reason": "the mirror has tags alone"}}}}}}}}
```

The levels are mandatory, advisory (findings are only printed) and disabled (the rule does not run). If any part of
`rules` is invalid, every rule stays mandatory.
"""


def build(folder: Path, root: Path = ROOT) -> Path:
    """Writes the folder of the policy pack below `folder`, and returns the folder's path."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    declared = yaml.safe_load((root / "policy" / "PulumiPolicy.yaml").read_text())
    made = folder / f"{declared['name']}-policy-{project['version']}"
    shutil.rmtree(made, ignore_errors=True)
    for package in PACKAGES:
        shutil.copytree(root / package, made / package, ignore=_is_not_code)
    for name in ("__main__.py", "PulumiPolicy.yaml"):
        (made / "policy" / name).unlink(missing_ok=True)
    shutil.copy(root / "policy" / "__main__.py", made)
    shutil.copy(root / "LICENSE", made)
    declared["runtime"]["options"] = _ENVIRONMENT
    (made / "PulumiPolicy.yaml").write_text(yaml.safe_dump(declared, sort_keys=False))
    needed = [
        line for line in project["dependencies"] if line.replace("<", "=").partition("=")[0].rstrip(">") in _NEEDED
    ]
    (made / "requirements.txt").write_text("".join(f"{line}\n" for line in needed))
    (made / ".gitignore").write_text(f"{_ENVIRONMENT['virtualenv']}/\n__pycache__/\n")  # for `pulumi policy publish`
    (made / "README.md").write_text(_README.format(version=project["version"]))
    return made


def archive(made: Path) -> Path:
    """Writes an archive next to a folder and returns it."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(path for path in made.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(str(Path(made.name) / path.relative_to(made)))
            status = path.stat()
            member.size, member.mode = status.st_size, 0o755 if status.st_mode & 0o100 else 0o644
            tar.addfile(member, io.BytesIO(path.read_bytes()))
    written = made.with_name(f"{made.name}.tar.gz")
    written.write_bytes(buffer.getvalue())
    return written


def _is_not_code(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]


if __name__ == "__main__":
    print(f"{archive(build(Path(sys.argv[1])))}: unpack it and run `pulumi install` there; its README.md says the rest")
