"""Writes the template for `pulumi new`, together with the wheel (`python -m toolchain.template FOLDER`).

The template contains the wheel, and requirements.txt names the wheel's file. A new project therefore gets this wheel,
and pip does not search its index for a package of this name.
"""

import shutil
import sys
from pathlib import Path

from toolchain import pack, wheel

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path("examples") / "template"
REQUIREMENTS = """# If your package index has the wheel, you can write gpu-tenancy=={version} instead of its file.
./{wheel}
"""


def build(folder: Path, root: Path = ROOT) -> Path:
    """Writes the wheel and the folder of the template below `folder`, and returns the template's folder."""
    built = wheel.build(folder, root)
    version = built.name.split("-")[1]
    made = folder / f"gpu-tenancy-template-{version}"
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(root / SOURCE, made)
    shutil.copy(built, made)
    (made / "requirements.txt").write_text(REQUIREMENTS.format(version=version, wheel=built.name))
    return made


if __name__ == "__main__":
    try:
        found = build(Path(sys.argv[1]).resolve())
    except wheel.WheelError as error:
        sys.exit(str(error))
    pack.archive(found)
    print(f"{found}: a project begins with pulumi new {found}; docs/reference/package/README.md says the rest")
