"""certify: creates the TLS certificates for the scheduler and the extender of one pod.

The certificates of the extender (server) and the scheduler (client) sign themselves, and each side trusts only the
other side's certificate. Without a certificate authority, each side verifies one signature less in a handshake. An init
container of the scheduler's pod runs the program.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from agents.runtime.settings import read, text, variable

SERVER, CLIENT = "server", "client"
_DAYS = 3650  # A certificate is valid for longer than any pod runs.
_KEY_MODE, _CERTIFICATE_MODE = 0o640, 0o644  # The setting fsGroup decides the group of these files.
_CONFIGURATION = """
[req]
distinguished_name = name
[name]
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1, DNS:localhost
[client]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
"""


class CertifyError(AgentError):
    """The certificates cannot be created. The message explains how to fix the problem."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    certificates: str = variable(text)


def start(environ: Mapping[str, str], log: Log) -> int:
    """Creates the certificates in the directory CERTIFICATES, and returns the exit status 0. Raises AgentError if a
    certificate cannot be created.
    """
    folder = Path(read(Settings, environ).certificates)
    make_certificates(folder)
    log.info("created certificates", directory=str(folder), days=_DAYS)
    return 0


def make_certificates(folder: Path) -> None:
    """Creates the certificates of the server and the client in `folder`. Writes each file atomically.

    Raises CertifyError.
    """
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as made:
            new = Path(made)
            (new / "openssl.cnf").write_text(_CONFIGURATION)
            for name in (SERVER, CLIENT):
                _create(new, name)
                _hand_over(new / f"{name}.key", folder, _KEY_MODE)
                _hand_over(new / f"{name}.crt", folder, _CERTIFICATE_MODE)
    except OSError as error:
        raise CertifyError(f"{folder}: cannot be written: {error}") from None


def _create(folder: Path, name: str) -> None:
    _openssl(
        folder, "req", "-x509", "-config", "openssl.cnf", "-extensions", name, "-subj", f"/CN=gpu-tenancy-{name}",
        "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", str(_DAYS),
        "-keyout", f"{name}.key", "-out", f"{name}.crt",
    )  # fmt: skip


def _hand_over(file: Path, folder: Path, mode: int) -> None:
    file.chmod(mode)
    file.replace(folder / file.name)


def _openssl(folder: Path, *arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise CertifyError("openssl is not in the image: take one that has it, such as python:3.13-slim")
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CertifyError(f"openssl {arguments[0]}: {done.stderr.strip()}")
