"""The board may only read, and only the ingress may connect to the board."""

import pytest
from pydantic import ValidationError

from components.agents.board import Board, BoardArgs, BoardSpec, IngressSpec
from components.base import zipapp
from tenancy.frameworks import FrameworkName
from tests.support.engine import Graph
from tests.support.given import CLUSTER, declared, environment, rights

NGINX = {"app.kubernetes.io/name": "ingress-nginx"}
SPEC = BoardSpec(ingress=IngressSpec(namespace="ingress-nginx", pod_labels=NGINX))
CODE = zipapp.build_for_board()


def board(spec: BoardSpec = SPEC, *frameworks: FrameworkName) -> Graph:
    return declared(Board, "board", BoardArgs(spec=spec, cluster=CLUSTER, code=CODE, frameworks=frameworks))


def test_the_board_only_reads_and_reads_no_secret_with_all_kinds_of_work() -> None:
    held = rights(board(SPEC, *FrameworkName))
    assert {verb for _, _, verb, _ in held} == {"get", "list"}
    assert not {resource for _, resource, _, _ in held} & {"/secrets", "*/*", "/*"}


@pytest.mark.parametrize("show_pods", [False, True])
def test_the_page_has_names_only_if_the_operator_allows_it(show_pods: bool) -> None:
    spec = SPEC if not show_pods else SPEC.model_copy(update={"show_pods": True})
    assert environment(dict(board(spec).one("Deployment").inputs))["SHOW_PODS"] == str(show_pods).lower()


@pytest.mark.parametrize(
    "given", [{}, {"ingress": {"namespace": "x"}}, {"ingress": {"namespace": "x", "pod_labels": {}}}]
)
def test_the_ingress_must_be_named(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        BoardSpec.model_validate(given)
