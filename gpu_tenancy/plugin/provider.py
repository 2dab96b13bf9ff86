"""The program that hosts the components: the engine starts it, asks it for their schema, which is made from the types
and docstrings of their arguments and outputs, and has it construct them for programs in any language."""

import os
import signal
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pulumi
from pulumi.errors import InputPropertiesError
from pulumi.provider import ConstructResult
from pulumi.provider import main as serve
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError

from gpu_tenancy import Platform, Queue, Seat, SeatedDeployment

PACKAGE = "gputenancy"  # as in the types of the components, which are the same whoever declares them


class Host(ComponentProvider):
    """What `component_provider_host` starts; but arguments that are refused are answered without a traceback."""

    def construct(
        self,
        name: str,
        resource_type: str,
        inputs: Mapping[str, Any],
        options: pulumi.ResourceOptions | None = None,
    ) -> ConstructResult:
        try:
            return super().construct(name, resource_type, inputs, options)
        except ComponentInitError as error:
            if isinstance(error.inner, pulumi.RunError):
                raise InputPropertiesError(str(error.inner), []) from None
            raise


def main() -> None:
    # The engine interrupts a plugin that it needs no more; asyncio's own way out says what it was waiting for.
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    serve(Host([Platform, Seat, SeatedDeployment, Queue], PACKAGE, version=version("gpu-tenancy")), sys.argv[1:])
