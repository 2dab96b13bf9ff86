"""Whose ~/.kube/config the throw-away cluster's kubeconfig may become, and when it goes."""

from pathlib import Path

import pytest

from toolchain.cluster import home, kubeconfig

REAL = "apiVersion: v1\nclusters: [{name: prod, cluster: {server: https://prod}}]\n"


@pytest.fixture
def clusters(tmp_path: Path) -> Path:
    return tmp_path / "clusters"


@pytest.fixture
def throw_away(clusters: Path) -> Path:
    """The kubeconfig of a cluster in `clusters`."""
    return written(clusters / "default", "https://127.0.0.1:6443")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / ".kube" / "config"


def written(folder: Path, server: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "admin.kubeconfig"
    kubeconfig.write(path, server, folder / "pki" / "ca.crt", {"token": "t"})
    return path


def test_kubectl_finds_the_cluster_where_it_would_find_none(throw_away: Path, clusters: Path, config: Path) -> None:
    environment = {"HOME": str(config.parents[1])}
    assert not home.leads_to(clusters, environment)
    home.lend(throw_away, clusters, environment)
    assert home.leads_to(clusters, environment)
    assert config.read_text() == throw_away.read_text()
    assert config.stat().st_mode & 0o777 == 0o600
    home.take_back(clusters, environment)
    assert not config.exists()


def test_what_a_killed_cluster_left_behind_is_replaced(throw_away: Path, clusters: Path, config: Path) -> None:
    environment = {"HOME": str(config.parents[1])}
    home.lend(throw_away, clusters, environment)
    again = written(clusters / "default", "https://127.0.0.1:7443")
    home.lend(again, clusters, environment)
    assert "7443" in config.read_text()


def test_an_own_configuration_stays(throw_away: Path, clusters: Path, config: Path, tmp_path: Path) -> None:
    config.parent.mkdir()
    for own in (REAL, "", written(tmp_path / "another checkout", "https://127.0.0.1:1").read_text()):
        config.write_text(own)
        home.lend(throw_away, clusters, {"HOME": str(tmp_path)})
        assert not home.leads_to(clusters, {"HOME": str(tmp_path)})
        home.take_back(clusters, {"HOME": str(tmp_path)})
        assert config.read_text() == own


def test_a_link_that_leads_nowhere_stays(throw_away: Path, clusters: Path, config: Path, tmp_path: Path) -> None:
    config.parent.mkdir()
    config.symlink_to(tmp_path / "on a drive that is not mounted")
    home.lend(throw_away, clusters, {"HOME": str(tmp_path)})
    assert (config.is_symlink(), config.exists()) == (True, False)


@pytest.mark.parametrize("environment", [{"KUBECONFIG": "/elsewhere"}, {"HOME": ""}])
def test_who_says_where_the_configuration_is_keeps_it(
    throw_away: Path, clusters: Path, config: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    home.lend(throw_away, clusters, {"HOME": str(tmp_path), **environment})
    assert not config.exists()


def test_it_goes_though_the_shell_has_a_kubeconfig_by_now(throw_away: Path, clusters: Path, config: Path) -> None:
    environment = {"HOME": str(config.parents[1])}
    home.lend(throw_away, clusters, environment)
    home.take_back(clusters, {**environment, "KUBECONFIG": str(throw_away)})
    assert not config.exists()
