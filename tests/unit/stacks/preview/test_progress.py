"""Tests what the operator sees while Pulumi runs."""

from collections.abc import Iterable

from stacks.preview.progress import Progress
from tests.support.streams import STACK, Event, component, events, lines, root, said, step, urn

IMMICH, TTS, CAPACITY = component("Tenant", "immich"), component("Tenant", "tts"), component("Capacity", "capacity")
HOME, QUOTA = urn("Namespace", "immich"), urn("ResourceQuota", "tts")
PLANNED = (
    root("create"),
    *(step("create", each) for each in (IMMICH, TTS, CAPACITY)),
    step("create", HOME, parent=IMMICH),
    step("update", QUOTA, parent=TTS),
)


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def progress(*planned: Event) -> tuple[Progress, Clock]:
    clock = Clock()
    return Progress(events(*(planned or PLANNED)).resources, clock), clock


def done(*urns: str, event: str = "resOutputsEvent") -> Iterable[Event]:
    return ({event: {"metadata": {"urn": each}}} for each in urns)


def test_each_kind_of_component_has_one_line_when_all_its_objects_are_done() -> None:
    run, clock = progress()
    assert [*run.add(lines([*PLANNED, *done(STACK, IMMICH, TTS, HOME)]))] == []
    assert run.state() == "  3 of 5  Capacity capacity …"
    clock.seconds = 7
    assert [*run.add(lines(done(CAPACITY, QUOTA)))] == [
        "  Tenant    3 created, 1 updated (7 s)",
        "  Capacity  1 created (7 s)",
    ]
    assert [*run.add([])] == []
    assert run.summary() == "4 created, 1 updated (7 s)"


def test_what_fails_is_not_counted_and_its_error_is_told_in_full() -> None:
    run, _ = progress()
    failed = said("error", "  the Job did not end:\n    its image is not there\n", urn=HOME)
    gone_on = done(HOME, event="resOpFailedEvent")
    assert [*run.add(lines([*PLANNED, *done(IMMICH, TTS, CAPACITY, QUOTA), failed, *gone_on]))] == [
        "  Capacity  1 created (0 s)"
    ]
    assert run.summary() == "3 created, 1 updated (0 s)"
    assert [*run.unfinished()] == []
    (reason,) = run.reasons()
    assert reason.endswith("the Job did not end:\n    its image is not there")
    assert reason.startswith("Namespace immich: ")


def test_an_object_is_unfinished_from_its_first_step_to_the_end_of_its_last() -> None:
    run, clock = progress(root(), step("same", IMMICH), step("replace", HOME, parent=IMMICH))
    first = [root(), step("same", IMMICH), step("create-replacement", HOME, parent=IMMICH)]
    assert [*run.add(lines(first))] == []
    clock.seconds = 20
    assert [(found.label, seconds) for found, seconds in run.unfinished()] == [("Namespace immich", 20)]
    assert [*run.add(lines([*done(HOME), step("delete-replaced", HOME, parent=IMMICH)]))] == []
    assert len([*run.unfinished()]) == 1
    assert [*run.add(lines(done(HOME)))] == ["  Tenant  1 replaced (20 s)"]


def test_a_run_without_changes_says_so() -> None:
    run, _ = progress(root(), step("same", IMMICH))
    assert [*run.add(lines([root(), step("same", IMMICH), *done(STACK, IMMICH)]))] == []
    assert run.summary() == "1 unchanged (0 s)"
    assert progress(root())[0].summary() == "nothing done (0 s)"
