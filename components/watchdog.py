"""The watchdog: under pressure it recycles the smallest set of over-budget pods (seed 000)."""

from pydantic import Field

from components.spec import Count, Seconds, Spec


class WatchdogSpec(Spec):
    """The agent that recycles over-budget pods under pressure."""

    armed: bool = Field(default=False, description="false: it says what it would do and does nothing.")
    interval_seconds: Seconds = Field(default=5, le=30)
    minimum_age_seconds: Seconds = Field(default=120, description="Younger pods are left alone: they load models.")
    cool_down_seconds: Seconds = Field(default=600, description="A recycled workload is left alone this long.")
    evictions_per_hour: Count = Field(default=6, description="Beyond it the watchdog refuses loudly.")
