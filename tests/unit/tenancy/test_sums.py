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


A100 = Pool(name="a100", node_selector={"gpu": "a100"}, nodes=1, device_count=8, sharing=Sharing.WHOLE)


@pytest.mark.parametrize(
    ("nominal", "lines"),
    [
        ({"1g.10gb": 56}, 0),
        ({"1g.10gb": 57}, 1),
        ({"1g.10gb": 640}, 1),
        ({"3g.40gb": 16}, 0),
        ({"3g.40gb": 17}, 1),
        ({"3g.40gb": 16, "1g.10gb": 8}, 0),
        ({"3g.40gb": 16, "1g.10gb": 9}, 1),
        ({"7g.80gb": 8}, 0),
        ({GPU: 4, "1g.10gb": 28}, 0),
        ({GPU: 4, "1g.10gb": 29}, 1),
        ({GPU: 8, "1c.2g.20gb": 1}, 1),
    ],
)
def test_queues_hand_out_no_more_slices_than_their_devices_have(nominal: dict[str, int], lines: int) -> None:
    quotas = tuple(
        QueueQuota(
            queue="a", flavor="a100", pool="a100", resource=r if r == GPU else f"nvidia.com/mig-{r}", nominal=amount
        )
        for r, amount in nominal.items()
    )
    found = [line for _, line in contradictions(Ledger(domain="example.com", pools=(A100,), quotas=quotas))]
    assert len(found) == lines, found
