"""What holds for all tests."""

import hypothesis

# A machine that runs other tests beside these is slow at times, which says nothing of the code; and a search that takes
# other examples each time would fail a change that did not touch what it found.
hypothesis.settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("steady")
