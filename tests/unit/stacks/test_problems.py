"""Tests that each error message has one line and names the key."""

from stacks import problems
from tests.support.prod import put, refusal


def test_names_that_do_not_fit_a_line_are_cut() -> None:
    assert problems.nearest("x", [f"pool-{n:02}" for n in range(40)], "there").endswith("pool-14, pool-15, …")


def test_a_long_value_is_cut() -> None:
    assert problems.shown_value("x" * 1000) == f" (got '{'x' * 60}'…)"


def test_a_refused_value_never_breaks_the_line() -> None:
    assert len(refusal(put("cluster resource_domain", "a\nb"))) == 1


def test_label_names_are_held_to_the_length_that_kubernetes_allows() -> None:
    selector = "pools t4 node_selector"
    assert refusal(put(f"{selector} {'a' * 63}", "x")) == []
    assert refusal(put(f"{selector} {'d' * 253}/{'a' * 63}", "x")) == []
    assert len(refusal(put(f"{selector} {'a' * 64}", "x"))) == 1
    assert len(refusal(put(f"{selector} {'d' * 254}/a", "x"))) == 1
    assert len(refusal(put(f"{selector} a/b/c", "x"))) == 1
    assert len(refusal(put(f"{selector} Example.com/a", "x"))) == 1
    assert len(refusal(put(f"{selector} a", "v" * 64))) == 1
    assert refusal(put(f"{selector} a", "")) == []
