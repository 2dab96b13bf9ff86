"""The demand gate: on-demand tenants scale 0 to 1 into real slack."""

from pydantic import Field, model_validator

from components.spec import Count, DnsLabel, HttpUrl, Mib, Seconds, Spec, TimeWindow, TimeZone


class HttpJsonDemand(Spec):
    """Demand by an HTTP probe: the number at `field` of a JSON answer, at least `at_least`."""

    url: HttpUrl
    field: str = Field(min_length=1, description="Path in the answer, for instance queue.pending.")
    at_least: Count = 1


class PrometheusDemand(Spec):
    """Demand by a Prometheus query: its single value, at least `at_least`."""

    address: HttpUrl
    query: str = Field(min_length=1)
    at_least: Count = 1


class WindowDemand(Spec):
    """Demand by the clock: always within a window of the day."""

    between: TimeWindow = Field(description='For instance "02:00-06:00"; may cross midnight.')
    time_zone: TimeZone = "Etc/UTC"


class OnDemandSpec(Spec):
    """A workload without a seat, scaled 0 to 1 into real slack by the demand gate."""

    tenant: DnsLabel
    pool: DnsLabel
    need_mib: Mib = Field(description="Free memory it needs, beyond the pool's floor and margin_mib.")
    margin_mib: Mib = Field(default=256, description="Hysteresis: slack that must remain when it is let in.")
    samples: Count = Field(default=3, description="Consecutive samples that must agree before anything changes.")
    deployment: DnsLabel | None = Field(default=None, description="The Deployment to scale; default: the key.")
    http_json: HttpJsonDemand | None = None
    prometheus: PrometheusDemand | None = None
    window: WindowDemand | None = None

    @model_validator(mode="after")
    def _has_one_demand_signal(self) -> "OnDemandSpec":
        given = [name for name in ("http_json", "prometheus", "window") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"needs exactly one demand signal (http_json, prometheus or window), got {', '.join(given) or 'none'}"
            )
        return self


class GateSpec(Spec):
    """The agent that lets on-demand tenants in and out."""

    armed: bool = Field(default=False, description="false: it says what it would do and does nothing.")
    interval_seconds: Seconds = Field(default=10, le=30)
