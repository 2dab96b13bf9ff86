"""Tests that a list of the cluster waits for a kind that was just created."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from agents.kube.errors import ApiError, Object
from agents.kube.kubectl import Kubectl
from stacks.cluster import Cluster


@dataclass
class Answers:
    """Answers a list with each status in turn, and then with one object."""

    statuses: list[int] = field(default_factory=list)

    def items(self, path: str, **_: str) -> Iterator[Object]:
        if self.statuses:
            raise ApiError(f"GET {path}", self.statuses.pop(0), "No", "not now")
        yield {"kind": "ClusterQueue"}


def listed(monkeypatch: pytest.MonkeyPatch, *statuses: int) -> list[Any]:
    monkeypatch.setattr("time.sleep", lambda _: None)
    return [*Cluster(cast(Kubectl, Answers([*statuses])), ()).items("/apis")]


def test_a_list_of_a_kind_that_was_just_created_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert listed(monkeypatch, 429, 429) == [{"kind": "ClusterQueue"}]
    assert listed(monkeypatch, 404) == []


@pytest.mark.parametrize("statuses", [(403,), (429,) * 30])
def test_any_other_refusal_is_an_error(monkeypatch: pytest.MonkeyPatch, statuses: tuple[int, ...]) -> None:
    with pytest.raises(ApiError):
        listed(monkeypatch, *statuses)
