"""Tests that each sleeping thread of the simulation wakes at its time."""

from random import Random

import pytest

from tests.simulation.model.world import World


def _world(*, jumping: bool = False) -> World:
    return World(Random(1), jumping=jumping)  # noqa: S311 (a simulation)


def _sleeps(world: World, told: list[tuple[float, str]], name: str, *seconds: float) -> None:
    for each in seconds:
        world.pass_time(each)
        told.append((world.now, name))


def test_each_sleeper_wakes_at_its_time() -> None:
    world, told = _world(), list[tuple[float, str]]()
    world.at(1.0, lambda: _sleeps(world, told, "first", 4.0, 1.0))
    world.at(2.0, lambda: _sleeps(world, told, "second", 100.0))
    world.at(3.0, lambda: _sleeps(world, told, "third", 2.0, 0.5))
    world.run(200.0)
    world.end()
    assert told == [(5.0, "first"), (5.0, "third"), (5.5, "third"), (6.0, "first"), (102.0, "second")]
    assert world.now == 200.0


def test_a_run_ends_while_somebody_sleeps_who_wakes_in_the_next() -> None:
    world, told = _world(), list[tuple[float, str]]()
    world.at(1.0, lambda: _sleeps(world, told, "one", 10.0))
    world.run(5.0)
    assert (world.now, told) == (5.0, [])
    world.run(20.0)
    world.end()
    assert told == [(11.0, "one")]


def test_no_time_is_left_out_while_somebody_sleeps() -> None:
    world, told = _world(jumping=True), list[tuple[float, str]]()
    world.at(0.0, lambda: _sleeps(world, told, "one", 1000.0))
    world.tick(500.0, lambda: told.append((world.now, "tick")))
    world.run(2000.0)
    world.end()
    assert told == [(500.0, "tick"), (1000.0, "one")]


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_what_an_act_raises_reaches_the_caller(seconds: float) -> None:
    world = _world()

    def fails() -> None:
        world.pass_time(seconds)
        raise KeyError("act")

    world.at(1.0, fails)
    world.at(1.5, lambda: None)
    with pytest.raises(KeyError, match="act"):
        world.run(10.0)
    world.end()


def test_the_end_ends_every_thread_in_its_sleep() -> None:
    world, ended = _world(), list[float]()

    def sleeps() -> None:
        try:
            world.pass_time(100.0)
        finally:
            ended.append(world.now)
            world.pass_time(1.0)  # stands for a cleanup in an agent

    for at in (1.0, 2.0, 3.0):
        world.at(at, sleeps)
    world.run(10.0)
    world.end()
    assert ended == [10.0] * 3
