"""The values that a hostile tenant writes."""

from collections.abc import Callable, Mapping
from typing import Any

from tenancy.names import KUEUE_POD_SET_LABEL, KUEUE_WORKLOAD_ANNOTATION, POD_TEMPLATE_HASH
from tests.simulation.model.api import Object

Dress = Callable[[Object], Object]


def _with(part: str, values: Mapping[str, Any]) -> Dress:
    def dress(pod: Object) -> Object:
        metadata = pod["metadata"]
        return {**pod, "metadata": {**metadata, part: {**(metadata.get(part) or {}), **values}}}

    return dress


def _queued(workload: str) -> Dress:
    label = _with("labels", {KUEUE_POD_SET_LABEL: "main"})
    annotation = _with("annotations", {KUEUE_WORKLOAD_ANNOTATION: workload})
    return lambda pod: annotation(label(pod))


def _grace(seconds: int) -> Dress:
    return lambda pod: {**pod, "spec": {**pod["spec"], "terminationGracePeriodSeconds": seconds}}


def _owner(**changes: Any) -> Dress:
    def dress(pod: Object) -> Object:
        owners = [{**owner, **changes} for owner in pod["metadata"]["ownerReferences"]]
        return {**pod, "metadata": {**pod["metadata"], "ownerReferences": owners}}

    return dress


TRICKS: Mapping[str, Dress] = {
    "a foreign Workload": _queued("job-train"),
    "a Workload with a query": _queued("job-a?dryRun=All"),
    "a Workload that is not ASCII": _queued("jöb-\u2028-☃"),
    "a Workload of 256 KiB": _queued("x" * 2**18),
    "a Workload above the others": _queued("../../../namespaces/kube-system/pods/a"),
    "a label without a value": _with("labels", {POD_TEMPLATE_HASH: ""}),
    "annotations of a mebibyte": _with("annotations", {"note": "n" * 2**20}),
    "a grace of 3000 years": _grace(100_000_000_000),
    "an owner of 100 KiB": _owner(name="o" * 100_000),
    "an owner that is not ASCII": _owner(name="öwner\n☃", kind="Rêplica"),
}

ANSWERS: Mapping[str, bytes] = {
    "401 digits": b'{"pending": ' + b"9" * 401 + b"}",
    "deep": b'{"pending": ' + b"[" * 100_000,
    "not UTF-8": b'{"pending": "\xff\xfe"}',
    "not a number": b'{"pending": NaN}',
    "infinite": b'{"pending": 1e999}',
    "a list": b"[1, 2, 3]",
    "nothing": b"",
    "a mebibyte": b'{"pending": "' + b"x" * 2**20 + b'"}',
    "another field": b'{"other": 1}',
    "true": b'{"pending": true}',
}
