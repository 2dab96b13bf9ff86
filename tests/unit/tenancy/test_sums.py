"""Compares the sums of a ledger with its devices."""

import pytest

from tenancy.choices import Sharing
from tenancy.ledger import Ledger, Pool, QueueQuota
from tenancy.names import GPU
from tenancy.sums import contradictions

L4 = Pool(name="l4", node_selector={"gpu": "l4"}, nodes=2, device_count=1, sharing=Sharing.WHOLE)


@pytest.mark.parametrize(("nominal", "borrowing", "rules"), [(2, 0, []), (2, 5, []), (3, 0, ["gpu-quota"])])
def test_borrowed_quota_is_no_contradiction(nominal: int, borrowing: int, rules: list[str]) -> None:
    quota = QueueQuota(queue="a", flavor="l4", pool="l4", resource=GPU, nominal=nominal, borrowing=borrowing)
    ledger = Ledger(domain="example.com", pools=(L4,), quotas=(quota,))
    assert [rule for rule, _ in contradictions(ledger)] == rules
