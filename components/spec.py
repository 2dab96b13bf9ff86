"""The base of every Spec, and the scalar types that say what Kubernetes accepts."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

# Names that Kubernetes accepts: RFC 1123 labels and subdomains, label keys and values, and pinned image references.
_DNS_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
DnsLabel = Annotated[str, StringConstraints(pattern=rf"^{_DNS_LABEL}$", max_length=63)]
DnsDomain = Annotated[str, StringConstraints(pattern=rf"^{_DNS_LABEL}(\.{_DNS_LABEL})+$", max_length=200)]
LabelKey = Annotated[
    str,
    StringConstraints(pattern=rf"^({_DNS_LABEL}(\.{_DNS_LABEL})*/)?[A-Za-z0-9]([-._A-Za-z0-9]{{0,61}}[A-Za-z0-9])?$"),
]
LabelValue = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$")]
ResourceName = Annotated[str, StringConstraints(pattern=rf"^({_DNS_LABEL}(\.{_DNS_LABEL})*/)?[-._A-Za-z0-9]+$")]
ImageReference = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][-a-z0-9._/:]*(@sha256:[0-9a-f]{64})?$")]
GroupName = Annotated[str, StringConstraints(pattern=r"^\S(.*\S)?$", max_length=253)]
HttpUrl = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+(/\S*)?$")]
TimeWindow = Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$")]
TimeZone = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]+(/[-+_A-Za-z0-9]+)*$")]
ChartVersion = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]

Mib = Annotated[int, Field(ge=1, le=2**31)]
Count = Annotated[int, Field(ge=1, le=100_000)]
Seconds = Annotated[int, Field(ge=1, le=86_400)]
PriorityValue = Annotated[int, Field(ge=-(2**31), le=1_000_000_000)]  # above 1e9 is the system's own


class Spec(BaseModel):
    """Plain data known before the program runs: frozen, strict, no unknown keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
