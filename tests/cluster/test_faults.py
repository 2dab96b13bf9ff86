"""What breaks while prod is rolled out or running, and that the end state is right nevertheless."""

from tests.cluster.rollout import GPUMEM, Rollout, eventually


def test_an_up_goes_on_when_the_api_server_is_restarted_under_it(prod: Rollout) -> None:
    prod.workspace.change(lambda config: config["residents"]["llama-swap"].update(gpumem_mib=5500))
    prod.cluster.restart("kube-apiserver")
    prod.up()
    quota = prod.get("/api/v1/namespaces/llama-swap/resourcequotas/gpumem-seats")
    assert quota["spec"]["hard"] == {f"requests.{GPUMEM}": "5500"}


def test_a_node_that_comes_back_is_advertised_again(prod: Rollout) -> None:
    """A new object under the old name, as after a reimage: the keys are gone with the old one."""
    node = prod.get("/api/v1/nodes/k8s-node1")
    assert prod.delete("/api/v1/nodes/k8s-node1").refusal is None
    hardware = {name: amount for name, amount in node["status"]["capacity"].items() if "viktorbarzin.me" not in name}
    fresh = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {key: node["metadata"][key] for key in ("name", "labels", "annotations")},
        "status": {"capacity": hardware, "allocatable": hardware},
    }
    assert prod.create("/api/v1/nodes", fresh).refusal is None
    assert GPUMEM not in prod.capacity("k8s-node1")
    eventually(lambda: prod.capacity("k8s-node1").get(GPUMEM) == "14k", "a later run advertises it")
