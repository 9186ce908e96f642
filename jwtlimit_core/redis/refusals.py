"""What is known of a store without asking it: keys that have nothing for some time."""

from collections import OrderedDict

from jwtlimit_core.clock import Clock
from jwtlimit_core.keys import LONGEST_KEY, StoredKey, stored_key
from jwtlimit_core.turn import Turn

__all__ = ["MOST_REFUSALS", "Refusals"]

MOST_REFUSALS = 10_000
_LONGEST_REFUSAL_NS = 60_000_000_000


class Refusals:
    """Keys that are known to have nothing for some time, so that an attack does not cost the store; bounded."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most  # 0: none is ever known
        self._now_ns = clock.monotonic_ns
        self._entries: OrderedDict[StoredKey, tuple[int, int, int]] = OrderedDict()
        self._turn = Turn()
        self.forgotten = 0

    def wait_ns(self, key: str, n: int) -> int:
        """Return how long *n* tokens of *key* surely stay refused; 0 where that is not known."""
        if not self._entries:
            return 0
        entry = self._entries.get(key if len(key) <= LONGEST_KEY else stored_key(key))
        if entry is None or n < entry[0]:
            return 0
        now_ns = self._now_ns()
        return entry[2] - now_ns if now_ns < entry[1] else 0

    def note(self, key: str, n: int, sent_ns: int, retry_after_ns: int, forgotten: int) -> None:
        """Remember a refusal, unless something was forgotten while it was under way: it may be older than that."""
        until_ns, found = sent_ns + retry_after_ns, stored_key(key)
        try:
            self._turn.take()
            if forgotten != self.forgotten:
                return
            self._entries[found] = n, min(until_ns, sent_ns + _LONGEST_REFUSAL_NS), until_ns
            self._entries.move_to_end(found)
            if len(self._entries) > self._most:
                self._entries.popitem(last=False)
        finally:
            self._turn.append(None)

    def drop(self, key: str) -> None:
        """Forget a refusal of *key*, since a charge has passed."""
        if self._entries and (found := stored_key(key)) in self._entries:
            try:
                self._turn.take()
                self._entries.pop(found, None)
            finally:
                self._turn.append(None)

    def forget(self, key: str | None = None) -> None:
        """Forget the refusals of *key*, or of all keys, since tokens came back; those that are under way too."""
        try:
            self._turn.take()
            self.forgotten += 1
            if key is None:
                self._entries.clear()
            else:
                self._entries.pop(stored_key(key), None)
        finally:
            self._turn.append(None)
