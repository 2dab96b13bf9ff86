"""Hosts the components for programs in any language. The engine starts this program, reads the components' schema, and
has it construct them. The schema is made from the types and docstrings of arguments and outputs."""

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

PACKAGE = "gputenancy"  # as in the types of the components


class Host(ComponentProvider):
    """The provider of `component_provider_host`, with refused arguments reported without a traceback."""

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
    # The engine interrupts a plugin at the end; asyncio would print a traceback.
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    serve(Host([Platform, Seat, SeatedDeployment, Queue], PACKAGE, version=version("gpu-tenancy")), sys.argv[1:])
