"""Makes the cluster's certificate authority and certificates with the openssl command line."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from toolchain.cluster.errors import ClusterError

DAYS = "30"


def make_authority(folder: Path) -> None:
    """Writes the CA (ca.crt, ca.key) and the key pair that signs ServiceAccount tokens (sa.key, sa.pub)."""
    folder.mkdir(mode=0o700)
    _openssl(
        folder, "req", "-x509", *_new_key("ca"), "-subj", "/CN=gpu-tenancy-cluster", "-days", DAYS, "-out", "ca.crt"
    )
    _openssl(folder, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "sa.key")
    _openssl(folder, "ec", "-in", "sa.key", "-pubout", "-out", "sa.pub")


def issue(folder: Path, name: str, *, user: str, group: str | None = None, hosts: Sequence[str] = ()) -> None:
    """Writes the certificate <name>.crt and its key <name>.key, for a user or for a server with the names `hosts`."""
    subject = (f"/O={group}" if group else "") + f"/CN={user}"
    extensions = ["basicConstraints=CA:FALSE", "extendedKeyUsage=clientAuth,serverAuth"]
    if hosts:
        extensions.append("subjectAltName=" + ",".join(map(_alternative_name, hosts)))
    (folder / f"{name}.ext").write_text("\n".join(extensions))
    _openssl(folder, "req", "-new", *_new_key(name), "-subj", subject, "-out", f"{name}.csr")
    authority = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial")
    _openssl(
        folder, "x509", "-req", "-in", f"{name}.csr", *authority, "-days", DAYS, "-extfile", f"{name}.ext",
        "-out", f"{name}.crt",
    )  # fmt: skip


def _alternative_name(host: str) -> str:
    return f"{'IP' if host.replace('.', '').isdigit() else 'DNS'}:{host}"


def _new_key(name: str) -> tuple[str, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")


def _openssl(folder: Path, *arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise ClusterError("openssl makes the cluster's certificates, and is not on PATH: install it")
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
