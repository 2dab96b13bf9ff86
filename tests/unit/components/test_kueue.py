import pytest

from components.kueue import Chart, Kueue, KueueArgs, KueueSpec
from tests.support.given import declared


@pytest.mark.parametrize(
    ("chart", "version"),
    [
        (Chart(address="./charts/kueue"), None),
        (Chart(address="oci://registry.example/kueue", version="0.19.2"), "0.19.2"),
    ],
)
def test_only_a_registrys_chart_has_a_version(chart: Chart, version: str | None) -> None:
    graph = declared(
        Kueue, "kueue", KueueArgs(spec=KueueSpec(version="0.19.2"), chart=chart, frameworks=[], manages_all=True)
    )
    release = graph.one("Release")
    assert (release.inputs["chart"], release.inputs.get("version")) == (chart.address, version)
    assert not release.inputs.get("skipAwait")  # Kueue is ready as soon as its webhooks respond
    assert graph.depends_on(release, graph.one("NamespacePatch"))
