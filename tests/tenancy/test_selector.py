"""A pool chooses nodes as a pod's nodeSelector does."""

from tenancy.selector import matches


def test_a_node_needs_every_label_with_its_value() -> None:
    selector = {"nvidia.com/gpu.present": "true", "zone": ""}
    assert matches(selector, {"nvidia.com/gpu.present": "true", "zone": "", "other": "x"})
    assert not matches(selector, {"nvidia.com/gpu.present": "true"})
    assert not matches(selector, {"nvidia.com/gpu.present": "True", "zone": ""})
