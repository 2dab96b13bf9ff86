"""One node's devices, and what is read of them while they change."""

from agents.extender.cache.node_info import NodeInfo
from agents.extender.cache.snapshot import usage_of
from tenancy.devices.allocate import Ask
from tests.support.devices import bound, inventory


def test_what_is_read_of_a_room_stays_as_it_was_while_the_room_changes() -> None:
    """So that whoever asks for the use of a thousand nodes holds no lock meanwhile."""
    room = NodeInfo("N")
    room.inventory = inventory("N", 8000, 4000)
    room.pods["bound"] = bound("bound", "N", 5000, 0)
    room.recount()
    seen = room.as_now()
    before = usage_of(seen)
    room.pods["more"] = bound("more", "N", 1000, 1)
    room.taken["taken"] = room.hold("taken", Ask(500), (1,))
    room.reserved["promised"] = room.hold("promised", Ask(500), (1,), until=1.0)
    room.recount()
    del room.pods["bound"]
    room.inventory = inventory("N", 2000)
    room.recount()
    assert usage_of(seen) == before
    assert usage_of(room) != before
