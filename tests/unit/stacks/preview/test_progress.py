"""The line that says how far a preview is."""

import io

from stacks.preview.progress import Progress
from tests.support.streams import events, root


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_many_resources_there_are_and_then_nothing_of_it() -> None:
    screen = Terminal()
    progress = Progress("lab", screen)
    progress(events(root()))
    progress.clear()
    assert screen.getvalue() == "\r\x1b[Kpreviewing lab …\r\x1b[Kpreviewing lab: 1 resource …\r\x1b[K"


def test_a_pipe_sees_nothing() -> None:
    pipe = io.StringIO()
    progress = Progress("lab", pipe)
    progress(events(root()))
    progress.clear()
    assert pipe.getvalue() == ""
