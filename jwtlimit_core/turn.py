"""The lock of the in-process limiter: cheap, never waited for in a queue, and free again in a forked child."""

import os
import time
from collections import deque
from operator import methodcaller
from weakref import WeakValueDictionary

__all__ = ["Turn", "give_back"]


class Turn(deque[None]):
    """A lock for sections of a few microseconds without I/O: who pops the one token has the turn, and appends it again.

    Both are documented as atomic, and cost a fifth of what a `threading.Lock` costs that is only ever tried. Write::

        try:
            turn.take()
            ...
        finally:
            turn.append(None)

    Threads that block on a lock hand it over one by one, and each waits for the interpreter in between: eight of them
    then do a tenth of the work of one. So nobody blocks here; who does not get the turn yields and looks again.

    An exception from outside, such as that of a signal handler, can come at any point, even right after the pop. So taking is
    part of the ``try``, and giving back is a single call of what is not written in Python, which nothing interrupts. A deque of
    one place holds one token at most: the worst is that two are let in once, and never that nobody is again.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__((None,), maxlen=1)
        _turns[id(self)] = self

    def take(self) -> None:
        """Come back with the turn."""
        while True:
            try:
                return self.pop()
            except IndexError:
                time.sleep(0)


give_back = methodcaller("append", None)  # several turns: ``list(map(give_back, turns))`` is as uninterrupted as one


# A child that is forked while another thread has the turn would wait for that thread for ever. A fork hook cannot be taken
# back, so there is one for all turns, and it keeps none of them alive.
_turns: "WeakValueDictionary[int, Turn]" = WeakValueDictionary()


def _free_all() -> None:
    for turn in list(_turns.values()):
        turn.clear()
        turn.append(None)


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows does not fork
    os.register_at_fork(after_in_child=_free_all)
