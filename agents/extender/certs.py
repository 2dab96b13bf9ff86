"""certify: creates the certificates by which scheduler and extender authenticate each other, for their pod alone.

A certificate authority signs one certificate for the server, which is 127.0.0.1, and one for the client, and its own
key is thrown away: nobody can join the two later. What is there and still valid is kept.
"""

import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from agents.runtime.settings import read, text, variable

AUTHORITY, SERVER, CLIENT = "ca", "server", "client"
_DAYS = 3650  # a pod does not live as long
_LEFT_SECONDS = 365 * 86_400  # what is valid for less is made again
_KEY_MODE, _CERTIFICATE_MODE = 0o640, 0o644  # the pod's group is the emptyDir's, by fsGroup
_PURPOSES = {SERVER: "sslserver", CLIENT: "sslclient"}
_CONFIGURATION = """
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
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
    """The certificates cannot be made; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    certificates: str = variable(text)


def start(environ: Mapping[str, str], log: Log) -> int:
    """Makes what is missing in the directory, then 0. Raises AgentError."""
    folder = Path(read(Settings, environ).certificates)
    if is_valid(folder):
        log.info("certificates exist, kept", directory=str(folder))
        return 0
    make(folder)
    log.info("created certificates", directory=str(folder), days=_DAYS)
    return 0


def is_valid(folder: Path) -> bool:
    """Whether both certificates have their key, the authority's signature and time left. Raises CertifyError."""
    return all(_is_valid(folder, name) for name in _PURPOSES)


def make(folder: Path) -> None:
    """An authority, a server and a client in `folder`, each file whole or not there. Raises CertifyError."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as made:
            new = Path(made)
            (new / "openssl.cnf").write_text(_CONFIGURATION)
            _request(new, AUTHORITY)
            for name in _PURPOSES:
                _request(new, name, "-CA", "ca.crt", "-CAkey", "ca.key")
                _hand_over(new / f"{name}.key", folder, _KEY_MODE)
                _hand_over(new / f"{name}.crt", folder, _CERTIFICATE_MODE)
            _hand_over(new / "ca.crt", folder, _CERTIFICATE_MODE)
    except OSError as error:
        raise CertifyError(f"{folder}: cannot be written: {error}") from None


def _request(folder: Path, name: str, *signer: str) -> None:
    _openssl(
        folder, "req", "-x509", "-config", "openssl.cnf", "-extensions", name, "-subj", f"/CN=gpu-tenancy-{name}",
        "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", str(_DAYS), *signer,
        "-keyout", f"{name}.key", "-out", f"{name}.crt",
    )  # fmt: skip


def _hand_over(file: Path, folder: Path, mode: int) -> None:
    file.chmod(mode)
    file.replace(folder / file.name)


def _is_valid(folder: Path, name: str) -> bool:
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        _openssl(folder, "x509", "-noout", "-checkend", str(_LEFT_SECONDS), "-in", certificate.name)
        _openssl(folder, "verify", "-purpose", _PURPOSES[name], "-CAfile", "ca.crt", certificate.name)
    except (OSError, _RefusedError):
        return False
    return True


class _RefusedError(CertifyError):
    """openssl ran and refused."""


def _openssl(folder: Path, *arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise CertifyError("openssl is not in the image: take one that has it, such as python:3.13-slim")
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise _RefusedError(f"openssl {arguments[0]}: {done.stderr.strip()}")
