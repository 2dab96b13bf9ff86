"""Tests that the policy pack judges only the objects in the ledger's cluster."""

import io
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

import pytest

from tests.support.graphs import LEDGER, UNKNOWN, Program, consumer, judge, judged, platform

CONFIG = {"ledger": LEDGER.to_data()}
HERE, THERE = {"context": "home"}, {"context": "staging"}
FILES = {"kubeconfig": "~/.kube/home", "context": "home", "cluster": "a"}


def second() -> Program:
    return {"second": consumer()["llama-swap"]}


def said(program: Program, providers: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> tuple[str, str]:
    printed = io.StringIO()
    with redirect_stdout(printed):
        messages = judged(program, config, providers)
    return "\n".join(messages), printed.getvalue()


def test_an_object_of_another_cluster_is_not_counted() -> None:
    program = platform() | second()
    providers = dict.fromkeys(platform(), HERE)
    assert "2 pods sit on a seat of 1 x 5000 MiB" in said(program, providers | {"second": HERE})[0]
    messages, printed = said(program, providers | {"second": THERE})
    assert messages == ""
    assert (
        "gpu-tenancy: warning: not judged, because its provider is of another cluster: Deployment llama-swap" in printed
    )


@pytest.mark.parametrize(
    "provider",
    [
        None,
        HERE | {"version": "4.25.0", "namespace": "x", "enableServerSideApply": "true"},
        {},
        {"kubeconfig": "~/.kube/home"},
        {"context": UNKNOWN},
        {"kubeconfig": UNKNOWN, "context": "staging"},
    ],
    ids=[
        "none",
        "another provider of the same cluster",
        "no setting",
        "no context",
        "an unknown context",
        "an unknown kubeconfig",
    ],
)
def test_an_object_counts_unless_its_provider_is_surely_of_another_cluster(provider: dict[str, Any] | None) -> None:
    providers = dict.fromkeys(platform(), HERE) | {"second": provider}
    assert "2 pods sit on a seat of 1 x 5000 MiB" in said(platform() | second(), providers)[0]


@pytest.mark.parametrize("other", [{"kubeconfig": "~/.kube/other", "context": "home"}, {"cluster": "b"}])
def test_each_setting_that_names_a_cluster_counts(other: dict[str, Any]) -> None:
    providers = dict.fromkeys(platform(), FILES) | {"second": other}
    assert said(platform() | second(), providers)[0] == ""


def test_a_second_ledger_in_another_cluster_is_still_refused() -> None:
    program = platform() | {"other": platform()["ledger"]}
    providers = dict.fromkeys(platform(), HERE) | {"other": THERE}
    assert "a second ledger; keep one" in said(program, providers)[0]


def test_a_program_beside_the_platform_counts_here_unless_the_configuration_names_the_context() -> None:
    program = consumer(5001)
    assert "its seat has 5000" in said(program, {"llama-swap": THERE}, CONFIG)[0]
    assert said(program, {"llama-swap": THERE}, CONFIG | {"context": "home"})[0] == ""
    assert "its seat has 5000" in said(program, {"llama-swap": HERE}, CONFIG | {"context": "home"})[0]
    for unclear in ({"context": UNKNOWN}, {}, None):
        assert "its seat has 5000" in said(program, {"llama-swap": unclear}, CONFIG | {"context": "home"})[0]


def test_without_a_provider_every_object_counts() -> None:
    assert judge(platform()) == []
