"""Reads the metrics of the cluster's real Kueue."""

import ssl
from http.client import HTTPSConnection

import yaml

from agents.runtime import exposition
from agents.runtime.exposition import Sample
from tests.support.e2e.controllers import administrator
from tests.support.waiting import PATIENCE_SECONDS
from toolchain.cluster.cluster import HeldCluster

ACCOUNT = "system:serviceaccount:default:prometheus"


class KueueMetrics:
    """Kueue signs its certificate itself, so the client does not verify the certificate."""

    def __init__(self, cluster: HeldCluster) -> None:
        config = yaml.safe_load((cluster.folder.path / "kueue.yaml").read_text())
        self._address = str(config["metrics"]["bindAddress"])
        self._headers = {"Authorization": f"Bearer {administrator(cluster.api, ACCOUNT)}"}
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    def samples(self) -> tuple[Sample, ...]:
        """Raises OSError if Kueue does not respond."""
        connection = HTTPSConnection(self._address, context=self._tls, timeout=PATIENCE_SECONDS)
        connection.request("GET", "/metrics", headers=self._headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status == 200, text
        return exposition.parse(text)
