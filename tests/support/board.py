"""A cluster for the tests of `kubectl gpumem board`. `python -m tests.support.board` draws the pictures in the docs."""

from dataclasses import replace
from html import escape, unescape
from pathlib import Path
from typing import Any

from gpumem import board, cluster
from gpumem.board import Board
from gpumem.draw_board import board_page
from tenancy.ledger import LocalQueue, Pool, QueueQuota
from tenancy.names import (
    EVENT_RECYCLED,
    GPU,
    KUEUE,
    KUEUE_API,
    LABEL_NAME,
    LABEL_PART_OF,
    PROJECT,
    RECONCILE,
    SCHEDULER,
    WATCHDOG,
)
from tests.support.fake_cluster import NAMES, SYSTEM
from tests.support.kubectl import BATCH, LEDGER_OF_PROD, FakeApi, add_exporter, api, node, page, pod
from tests.support.paths import ROOT

WORKLOADS = f"/apis/{KUEUE_API}"
# Maps each picture to its width and height in pixels.
PICTURES = {"board": (960, 1910), "board-phone": (390, 2540)}
CROWDED = (
    f"0/2 nodes are available: 1 Insufficient {NAMES.gpumem}, 1 node(s) didn't match Pod's node affinity/selector."
)
WAITS = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": CROWDED}


def sample() -> FakeApi:
    """Returns a cluster with running, waiting and queued work, in which a pod uses more than its budget."""
    quotas = tuple(
        QueueQuota(queue=name, flavor="l4", pool="batch", resource=GPU, nominal=2, borrowing=2)
        for name in ("vision", "speech")
    )
    pool: Pool = replace(BATCH, device_count=4)
    queues = (LocalQueue(name="gpu", tenant="team-a", queue="vision"),)
    ledger = replace(LEDGER_OF_PROD, pools=(LEDGER_OF_PROD.pools[0], pool), quotas=quotas, local_queues=queues)
    found = api(
        [
            pod("immich-ml-6c9f8d7b54-x2x9w", 3000, on="k8s-node1"),
            pod("llama-swap-5469957f7f-thbxn", 5000, "llama-swap", on="k8s-node1"),
            pod("translate-77d9fb6c4-q8z5k", 4000, "translate", on="k8s-node1"),
            pod("tts-66b8d7c9f-7xk2p", 0, "tts", on="k8s-node1"),
            pod("immich-server-5d66d4d49-szxql", 1800, "immich", on="k8s-node1"),
            pod("caption-84b5c6d7f8-m4n2v", 2500, "caption", status={"conditions": [dict(WAITS)]}),
            pod("train-0", 0, "team-a", on="k8s-node2", limits={GPU: "3"}),
        ],
        [node("k8s-node1"), node("k8s-node2", "whole", allocatable={GPU: "4"})],
        ledger,
    )
    uses = {
        "immich/immich-ml-6c9f8d7b54-x2x9w": 2800,
        "llama-swap/llama-swap-5469957f7f-thbxn": 6100,
        "translate/translate-77d9fb6c4-q8z5k": 3100,
        "immich/immich-server-5d66d4d49-szxql": 640,
        "tts/tts-66b8d7c9f-7xk2p": 900,
    }
    add_exporter(found, "k8s-node1", page("k8s-node1", 1200, uses))
    found.lists[cluster.CLUSTER_QUEUES] = [_queue("vision", 3, 1, 1), _queue("speech", 0, 0, 0)]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-large", "uid": "uid-job", "controller": True}
    metadata = {"name": "train-large", "namespace": "team-a", "creationTimestamp": "2026-11-22T11:30:00Z"}
    waits = {"type": "QuotaReserved", "status": "False", "message": "couldn't assign flavors: 1 more GPU needed"}
    workload = {
        "metadata": {**metadata, "ownerReferences": [owner]},
        "spec": {"queueName": "gpu", "priority": 0},
        "status": {"conditions": [waits]},
    }
    for path in ("workloads", "namespaces/team-a/workloads"):
        found.lists[f"{WORKLOADS}/{path}"] = [workload]
    job = {"metadata": {**metadata, "uid": "uid-job"}, "spec": {"suspend": True}}
    found.objects["/apis/batch/v1/namespaces/team-a/jobs/train-large"] = job
    scheduler = pod(
        "scheduler", 0, SYSTEM, on="k8s-node2", status={"conditions": [{"type": "Ready", "status": "True"}]}
    )
    scheduler["metadata"]["labels"] = {LABEL_NAME: SCHEDULER}
    found.lists[f"/api/v1/namespaces/{SYSTEM}/pods"] = [scheduler]
    found.objects["/apis/apps/v1/namespaces/tts/deployments/tts"] = {"spec": {"replicas": 1}}
    recycled = {
        "metadata": {"namespace": "translate"},
        "reportingComponent": WATCHDOG,
        "involvedObject": {"kind": "Pod", "namespace": "translate", "name": "translate-77d9fb6c4-w4m6p"},
        "reason": EVENT_RECYCLED,
        "message": "evicted because GPU 0 has 310 MiB free, and it used 1100 MiB beyond its budget",
        "lastTimestamp": "2026-11-22T11:41:07Z",
    }
    found.lists["/api/v1/events"] = [recycled]
    ran = {"metadata": {"name": RECONCILE, "namespace": SYSTEM, "labels": {LABEL_PART_OF: PROJECT}}, "spec": {}}
    found.lists[f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs"] = [
        {**ran, "status": {"lastSuccessfulTime": "2026-11-22T11:59:20Z"}}
    ]
    kueue = {"metadata": {"name": "kueue", "namespace": "kueue-system", "labels": {LABEL_NAME: KUEUE}}, "spec": {}}
    found.lists["/apis/apps/v1/deployments"] = [{**kueue, "status": {"readyReplicas": 1}}]
    for namespace in ("caption", "team-a"):
        found.lists[f"/api/v1/namespaces/{namespace}/events"] = []
        found.lists[f"/apis/apps/v1/namespaces/{namespace}/replicasets"] = []
    return found


def _queue(name: str, used: int, borrowed: int, waiting: int) -> dict[str, Any]:
    usage = {"name": "l4", "resources": [{"name": GPU, "total": str(used), "borrowed": str(borrowed)}]}
    return {
        "metadata": {"name": name},
        "spec": {"cohortName": "research"},
        "status": {
            "conditions": [{"type": "Active", "status": "True"}],
            "flavorsUsage": [usage],
            "pendingWorkloads": waiting,
        },
    }


def read(found: FakeApi, namespace: str = "immich", only: str | None = None) -> Board:
    return board.read(found, SYSTEM, lambda: namespace, only)


def picture(name: str) -> str:
    """Returns a picture of the page. The width of a picture's window is not known, so its style is that of its page."""
    width, height = PICTURES[name]
    narrow = "@media all" if width < 600 else "@media not all"
    page = board_page(read(sample()), 5).replace("@media (max-width: 599px)", narrow)
    title, style, body = (
        page.partition(f"<{part}>")[2].partition(f"</{part}>")[0] for part in ("title", "style", "body")
    )
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">
<title>{escape(unescape(title))}</title>
<style>{escape(style)}</style>
<foreignObject width="{width}" height="{height}"><body xmlns="http://www.w3.org/1999/xhtml">{body}</body></foreignObject>
</svg>
"""


def main(folder: Path = ROOT / "docs" / "pictures") -> None:
    for name in PICTURES:
        (folder / f"{name}.svg").write_text(picture(name))


if __name__ == "__main__":
    main()
