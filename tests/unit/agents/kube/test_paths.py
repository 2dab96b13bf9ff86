"""Tests that a tenant's name can never send an agent's request to another object."""

import pytest

from agents.kube.paths import PathError, api_path, below, with_query


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("train", "train"),
        ("job-a?dryRun=All", "job-a%3FdryRun%3DAll"),
        ("../pods/victim", "..%2Fpods%2Fvictim"),
        ("a/../../b", "a%2F..%2F..%2Fb"),
        ("a#b;c d\r\nX: y", "a%23b%3Bc%20d%0D%0AX%3A%20y"),
        ("%2e%2e", "%252e%252e"),
    ],
)
def test_each_part_of_a_path_is_quoted(name: str, quoted: str) -> None:
    path = api_path("v1", "namespaces", name, "pods", name)
    assert path == f"/api/v1/namespaces/{quoted}/pods/{quoted}"
    assert below(path, name) == f"{path}/{quoted}"
    assert with_query(path, fieldManager=name).partition("?")[0] == path


@pytest.mark.parametrize("name", ["", ".", "..", "é", "\ud800"])
def test_a_name_that_no_url_can_have_is_refused(name: str) -> None:
    with pytest.raises(PathError, match="is no name of an object"):
        api_path("v1", "namespaces", name)
