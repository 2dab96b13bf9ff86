"""How the tests are spread over processes: a file stays together, and all that share the one real cluster do."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        shared = "real_cluster" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("cluster" if shared else str(item.path)))
