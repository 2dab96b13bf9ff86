"""The base class of every Spec, and types for strings and numbers that Kubernetes accepts.

Source of the patterns: k8s.io/apimachinery pkg/util/validation/validation.go.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from tenancy.image import PINNED, is_pinned


@dataclass(frozen=True)
class StringForm:
    """The allowed form of a string: `words` describe the form to the operator, and `pattern` is its regular expression.
    A pattern means the same in Python and in ECMA-262."""

    words: str
    pattern: str

    def check(self, text: str) -> str:
        """Returns the text unchanged. Raises PydanticCustomError of type `form` if the text does not match."""
        if re.fullmatch(self.pattern, text) is None:
            raise PydanticCustomError("form", "must be {words}", {"words": self.words})
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        # Editors with vscode-json-languageservice show patternErrorMessage. Other readers of the schema ignore
        # patternErrorMessage.
        return {**handler(schema), "pattern": f"^(?:{self.pattern})$", "patternErrorMessage": f"must be {self.words}"}


# An RFC 1123 label has at most 63 characters. For a subdomain, Kubernetes limits only the total length.
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_SUBDOMAIN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_NAME_PART = r"[A-Za-z0-9](?:[-._A-Za-z0-9]{0,61}[A-Za-z0-9])?"
_QUALIFIED_NAME = rf"(?:(?=[^/]{{1,253}}/){_SUBDOMAIN}/)?{_NAME_PART}"
_HOST_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?)*\.?"
_PORT = r"(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
# Image name, tag and digest as in regexp.go of github.com/distribution/reference, without the rare separators.
_IMAGE_PART = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_IMAGE_HOST = r"[A-Za-z0-9][-.A-Za-z0-9]*(?::[0-9]{1,5})?/"
_IMAGE_TAG = r":[A-Za-z0-9_][-.A-Za-z0-9_]{0,127}"


def _stays(image: str) -> str:
    if not is_pinned(image):
        raise ValueError(f"is not pinned; write {PINNED} (got {image!r})")
    return image


def _lasts(window: str) -> str:
    start, _, end = window.partition("-")
    if start == end:
        raise ValueError(f"ends when it begins; write another end, or remove the window (got {window!r})")
    return window


def _is_a_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        if available_timezones():  # Some machines lack the data of time zones.
            raise ValueError(f"is no time zone; write that of a place, such as Europe/Berlin (got {name!r})") from None
    return name


DnsLabel = Annotated[str, StringForm("lower-case letters, digits and '-' between them, at most 63 characters", _LABEL)]
# A domain has at most 56 characters, because gpumem.<domain> is the name of a DRA driver. Kubernetes limits the name of
# a DRA driver to 63 characters (DriverNameMaxLength in k8s.io/api resource/v1).
DnsDomain = Annotated[
    str, StringConstraints(max_length=56), StringForm("a DNS name such as example.com", rf"{_LABEL}(?:\.{_LABEL})+")
]
ObjectName = Annotated[
    str,
    StringConstraints(max_length=253),
    StringForm("lower-case letters, digits, '-' and '.' between them, at most 253 characters", _SUBDOMAIN),
]
LabelKey = Annotated[
    str,
    StringForm(
        "a label key such as example.com/gpu: a name of at most 63 characters, a DNS name before it", _QUALIFIED_NAME
    ),
]
LabelValue = Annotated[
    str,
    StringForm(
        "at most 63 letters, digits, '-', '_' and '.', the first and last a letter or digit", rf"(?:{_NAME_PART})?"
    ),
]
ResourceName = Annotated[str, StringForm("a resource name such as nvidia.com/gpu or cpu", _QUALIFIED_NAME)]
ImageReference = Annotated[
    str,
    StringForm(
        "an image reference such as docker.io/library/python:3.13.9-slim-bookworm",
        rf"(?:{_IMAGE_HOST})?{_IMAGE_PART}(?:/{_IMAGE_PART})*(?:{_IMAGE_TAG})?(?:@sha256:[0-9a-f]{{64}})?",
    ),
    AfterValidator(_stays),
]
GroupName = Annotated[
    str, StringForm("a group's name without spaces around it, at most 253 characters", r"(?=.{1,253}$)\S(?:.*\S)?")
]
# Groups with the prefix system: are not allowed, because most of them include every account.
# https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects
PeopleName = Annotated[
    str,
    StringForm(
        "a group of your identity provider: its name without spaces around it and without system: before it",
        r"(?=.{1,253}$)(?!system:(?!serviceaccounts:.))\S(?:.*\S)?",
    ),
]
HttpUrl = Annotated[
    str,
    StringForm(
        "a URL such as http://queue.team-a.svc/status",
        rf"https?://(?:{_HOST_NAME}|\[[:.0-9A-Fa-f]+\])(?::{_PORT})?(?:/[!-~]*)?(?:\?[!-~]*)?",
    ),
]
TimeWindow = Annotated[
    str, StringForm("two times of the day such as 02:00-06:00", rf"{_CLOCK}-{_CLOCK}"), AfterValidator(_lasts)
]
TimeZone = Annotated[
    str,
    StringForm("a time zone such as Europe/London or Etc/UTC", r"[A-Za-z][-+_A-Za-z0-9]*(?:/[-+_A-Za-z0-9]+)*"),
    AfterValidator(_is_a_zone),
]
ChartVersion = Annotated[str, StringForm("a version such as 0.19.2", r"[0-9]+\.[0-9]+\.[0-9]+")]

Mib = Annotated[int, Field(ge=1, le=2**31, examples=[4096])]
MibOrNone = Annotated[int, Field(ge=0, le=2**31, examples=[1024])]
Cpus = Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
MostCpus = Annotated[
    Cpus | None,
    Field(
        description="Most CPUs that a pod may request. Default: its part of the pool's cpus, or no bound for an "
        "unbudgeted workload.",
        examples=[4],
    ),
]
MostHostMemory = Annotated[
    Mib | None,
    Field(
        description="Most MiB of host memory that a pod may request. Default: its part of the pool's host_memory_mib, "
        "or no bound for an unbudgeted workload.",
        examples=[8192],
    ),
]
Count = Annotated[int, Field(ge=1, le=100_000, examples=[2])]
Seconds = Annotated[int, Field(ge=1, examples=[10])]  # `le` would override a field's own `le`
PriorityValue = Annotated[  # Kubernetes reserves the values above 1e9.
    int,
    Field(
        ge=-(2**31),
        le=1_000_000_000,
        description="Priority value of the class. A class with a higher value comes first.",
        examples=[100_000],
    ),
]
Labels = Annotated[dict[LabelKey, LabelValue], Field(examples=[{"nvidia.com/gpu.present": "true"}])]

# Types of settings with a value that is a key of `tenants`, `pools` and so on.
TenantKey = Annotated[
    DnsLabel, Field(description="Key of tenants: the namespace of the workload or queue.", examples=["team-a"])
]
PoolKey = Annotated[DnsLabel, Field(description="Key of pools: the devices that the workload uses.", examples=["t4"])]
PriorityKey = Annotated[DnsLabel, Field(description="Key of priorities: the PriorityClass.", examples=["gpu-workload"])]


class Spec(BaseModel):
    """The base class of settings, which are known before the program runs. A Spec is frozen and strict, and refuses
    unknown keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    # The other parts of the stack that this part needs, each with the reason.
    needs: ClassVar[Mapping[str, str]] = {}


class TaintSpec(Spec):
    """A taint of nodes. The scheduler keeps away pods that do not tolerate the taint."""

    key: LabelKey = Field(description="Key of the taint.", examples=["spot"])
    value: LabelValue = Field(default="", description="Value of the taint.", examples=["true"])
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="NoSchedule", description="Effect of the taint."
    )

    @property
    def toleration(self) -> dict[str, str]:
        """Returns the toleration of exactly this taint as an API object."""
        return {"key": self.key, "operator": "Equal", "value": self.value, "effect": self.effect}


class TolerationSpec(Spec):
    """A toleration of pods. A toleration without `value` tolerates every value of the taint."""

    key: LabelKey = Field(description="Key of the taint.", examples=["nvidia.com/gpu"])
    value: LabelValue | None = Field(
        default=None, description="Value of the taint. Default: every value.", examples=["present"]
    )
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        default="NoSchedule", description="Effect of the taint."
    )

    @property
    def declared(self) -> dict[str, str]:
        """Returns the toleration as an API object."""
        match = {"operator": "Exists"} if self.value is None else {"operator": "Equal", "value": self.value}
        return {"key": self.key, **match, "effect": self.effect}
