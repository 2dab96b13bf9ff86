import pytest
from pydantic import ValidationError

from components.base.network import PrometheusSpec, ingress

METADATA = {"name": "exporter", "namespace": "nodes"}
SELECTOR = {"app.kubernetes.io/name": "exporter"}


def test_without_labels_every_pod_of_the_namespace_would_be_prometheus() -> None:
    with pytest.raises(ValidationError):
        PrometheusSpec(namespace="monitoring", pod_labels={})


def test_nobody_is_not_everybody() -> None:
    assert ingress(METADATA, SELECTOR, 9401, [])["spec"]["ingress"] == []
