"""Tests that the plugin reports wrong arguments to programs in other languages."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pytest
from pulumi.errors import InputPropertiesError

from gpu_tenancy.plugin.provider import PACKAGE, Host
from tests.support.engine import build


@pytest.fixture
def host() -> Host:
    return Host("0.0.0")


def construct(host: Host, component: str, inputs: Mapping[str, Any]) -> None:
    build(lambda: host.construct("mine", f"{PACKAGE}:index:{component}", inputs))


def test_a_refusal_is_answered_in_the_components_own_words_alone(host: Host) -> None:
    with pytest.raises(InputPropertiesError) as refused:
        construct(host, "SeatedDeployment", {"image": "x", "platform": pulumi.Output.from_input("y")})
    assert refused.value.message.startswith("SeatedDeployment mine is refused:\n  platform: must be a string")
    assert "Traceback" not in refused.value.message


def test_a_mistake_of_ours_keeps_its_traceback(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_tenancy.deployment.deployment", lambda *_: {}["a bug"])
    with pytest.raises(Exception, match="a bug") as raised:
        construct(host, "SeatedDeployment", {"image": "x", "residents": {"mine": {"namespace": "chat"}}})
    assert not isinstance(raised.value, InputPropertiesError)
