"""The board may only read, and only the ingress may connect to the board."""

from components.agents.board import Board, BoardArgs, BoardSpec, IngressSpec
from components.base import zipapp
from tenancy.frameworks import FrameworkName
from tests.support.engine import Graph
from tests.support.given import CLUSTER, declared, rights

NGINX = {"app.kubernetes.io/name": "ingress-nginx"}
SPEC = BoardSpec(ingress=IngressSpec(namespace="ingress-nginx", pod_labels=NGINX))
CODE = zipapp.build_for_board()


def board(spec: BoardSpec = SPEC, *frameworks: FrameworkName) -> Graph:
    return declared(Board, "board", BoardArgs(spec=spec, cluster=CLUSTER, code=CODE, frameworks=frameworks))


def test_the_board_only_reads_and_reads_no_secret_with_all_kinds_of_work() -> None:
    held = rights(board(SPEC, *FrameworkName))
    assert {verb for _, _, verb, _ in held} == {"get", "list"}
    assert not {resource for _, resource, _, _ in held} & {"/secrets", "*/*", "/*"}
