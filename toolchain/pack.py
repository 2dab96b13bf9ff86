"""Writes the policy pack as a standalone folder and as an archive (`python -m toolchain.pack FOLDER`).

The folder contains the packages of the rules, and the requirements file that `pulumi install` needs. The names of the
folder and of the archive contain the project's version.
"""

import shutil
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("policy", "tenancy")
_NEEDED = ("cel-expr-python", "protobuf", "pulumi", "pulumi-policy", "pyyaml", "setuptools")
_ENVIRONMENT = {"toolchain": "pip", "virtualenv": "venv"}


def build(folder: Path, root: Path = ROOT) -> Path:
    """Writes the folder of the policy pack below `folder`, and returns the folder's path."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    declared = yaml.safe_load((root / "policy" / "PulumiPolicy.yaml").read_text())
    made = folder / f"{declared['name']}-policy-{project['version']}"
    shutil.rmtree(made, ignore_errors=True)
    for package in PACKAGES:
        shutil.copytree(root / package, made / package, ignore=shutil.ignore_patterns("__pycache__"))
    (made / "policy" / "PulumiPolicy.yaml").unlink()
    for name in ("__main__.py", "README.md"):
        (made / "policy" / name).rename(made / name)
    shutil.copy(root / "LICENSE", made)
    declared["runtime"]["options"] = _ENVIRONMENT
    (made / "PulumiPolicy.yaml").write_text(yaml.safe_dump(declared, sort_keys=False))
    needed = [
        line for line in project["dependencies"] if line.replace("<", "=").partition("=")[0].rstrip(">") in _NEEDED
    ]
    (made / "requirements.txt").write_text("".join(f"{line}\n" for line in needed))
    (made / ".gitignore").write_text(f"{_ENVIRONMENT['virtualenv']}/\n__pycache__/\n")  # for `pulumi policy publish`
    return made


def archive(made: Path) -> Path:
    """Writes an archive next to a folder and returns it."""
    return Path(shutil.make_archive(str(made), "gztar", made.parent, made.name))


if __name__ == "__main__":
    print(f"{archive(build(Path(sys.argv[1])))}: unpack it and run `pulumi install` there; its README.md says the rest")
