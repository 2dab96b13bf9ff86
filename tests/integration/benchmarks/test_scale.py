"""The stack that the benchmark on clusters rolls out."""

from tests.benchmarks.scale import Size, enlarge
from tests.support.graphs import judge
from tests.support.prod import declared, raw


def test_prod_with_many_tenants_and_nodes_breaks_no_rule() -> None:
    config = raw()
    enlarge(config, Size(nodes=2, tenants=1, seats_a_tenant=10))
    assert judge(declared(config)) == []
