"""Tests the certificates of the scheduler's pod in a real TLS handshake.

The program openssl makes these certificates.
"""

import io
import ssl
import stat
from pathlib import Path

import pytest

from agents.extender import certs
from agents.extender.certs import CertifyError
from agents.runtime.log import Log

FILES = {"client.crt", "client.key", "server.crt", "server.key"}


def run(folder: Path) -> int:
    return certs.start({"CERTIFICATES": str(folder)}, Log("certify", io.StringIO()))


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def handshake(folder: Path, client: str) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = ssl.CERT_REQUIRED
    caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context, name, trusted in ((server, "server", "client"), (caller, client, "server")):
        context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
        context.load_verify_locations(folder / f"{trusted}.crt")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(there, back, server_side=True), caller.wrap_bio(back, there, server_hostname="127.0.0.1")]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


def test_the_keys_are_good_for_a_server_on_the_loopback_and_its_client(tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    assert set(contents(tmp_path)) == FILES
    handshake(tmp_path, "client")


def test_the_servers_certificate_is_no_clients(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ssl.SSLError, match=r"verify failed"):
        handshake(tmp_path, "server")


def test_keys_are_for_the_owner_and_the_pods_group_alone(tmp_path: Path) -> None:
    run(tmp_path)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {name: 0o640 if name.endswith(".key") else 0o644 for name in FILES}


def test_an_image_without_openssl_is_reported_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CertifyError, match="openssl is not in the image"):
        run(tmp_path)


def test_a_directory_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CertifyError, match="cannot be written"):
        run(tmp_path / "nowhere")
