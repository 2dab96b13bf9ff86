"""The exporter: GPU memory by pod, measured on each node."""

from typing import Annotated

from pydantic import Field

from components.spec import Seconds, Spec


class ExporterSpec(Spec):
    """The node agent that measures GPU memory by pod."""

    port: Annotated[int, Field(ge=1024, le=65535)] = 9401
    interval_seconds: Seconds = Field(default=5, le=60)
