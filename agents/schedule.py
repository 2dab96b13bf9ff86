"""How long a CronJob's run may last: on a busy cluster its container starts late, and the Job's deadline does not."""

import re
from datetime import datetime

# From the scheduled minute to the last pass: the rest until the Job's deadline (components/agent.py) is that pass's.
LAST_PASS_SECONDS = 48
_MINUTE_SECONDS = 60
# <CronJob>-<minutes since 1970>-<5 letters>: getJobName in pkg/controller/cronjob/utils.go of Kubernetes.
_POD_NAME = re.compile(r".+-(\d+)-[a-z0-9]{5}")


def seconds_left(run_seconds: float, pod_name: str, now: datetime) -> float:
    """`run_seconds`, or less where the pod of a CronJob's run started so late that its Job would end before it."""
    scheduled = _POD_NAME.fullmatch(pod_name)
    if scheduled is None:  # made by hand
        return run_seconds
    late = now.timestamp() - int(scheduled[1]) * _MINUTE_SECONDS
    if not 0 <= late < _MINUTE_SECONDS:  # a number of another meaning, or clocks that disagree
        return run_seconds
    return max(0.0, min(run_seconds, LAST_PASS_SECONDS - late))
