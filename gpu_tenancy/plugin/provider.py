"""Hosts the components for programs in any language. Pulumi's engine starts this program, reads the schema of the
components, and asks the program to construct them. Pulumi derives the schema from the types and docstrings of the
arguments and outputs."""

import json
import os
import signal
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import pulumi
from pulumi.errors import InputPropertiesError
from pulumi.provider import ConstructResult
from pulumi.provider import main as serve
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError

from gpu_tenancy import Platform, Queue, Seat, SeatedDeployment
from gpu_tenancy.plugin.settings_types import with_settings
from stacks.schema import settings_schema

PACKAGE = "gputenancy"  # The components' type tokens have the same package name.


class Host(ComponentProvider):
    """A component provider with typed settings, which reports wrong arguments without a traceback."""

    def __init__(self, version: str) -> None:
        super().__init__([Platform, Seat, SeatedDeployment, Queue], PACKAGE, version=version)
        self.schema = json.dumps(with_settings(json.loads(str(self.schema)), settings_schema()))

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
    # The engine ends a plugin with the signal SIGINT. Without a handler for SIGINT, asyncio would print a traceback.
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    serve(Host(metadata.version("gpu-tenancy")), sys.argv[1:])
