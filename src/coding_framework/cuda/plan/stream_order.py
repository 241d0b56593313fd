"""Which device work of a call its streams, events and synchronisations order.

As the host asks for work, each piece gets a place in its stream and the work that is over before
it begins: on every stream, up to which place. The caller makes the inputs, and takes the outputs,
on the legacy default stream, which waits for all streams but those made `cudaStreamNonBlocking`, as
they do for it.
"""

from __future__ import annotations

from enum import IntEnum

from coding_framework.cuda.plan.launch_plan import CandidateFault
from coding_framework.types import Status

INPUTS = -1
"""The caller's work before the call: it makes the inputs. After the call it takes the outputs, with
the number of the call's operations."""
_LEGACY = 0
_LEGACY_HANDLES = frozenset({0, 1})
_NON_BLOCKING = 8
"""The bit of the handle that the stand-in for libcudart gives such a stream."""
_MAX_PAIRS = 1_000_000

Clock = dict[int, int]
"""By stream: the place of its last piece of work that is over."""
Unordered = tuple[tuple[int, tuple[int, ...]], ...]
"""Numbers of operations, each with the earlier ones that nothing orders before it."""


class Ordering(IntEnum):
    """What host code says of streams (`host/runtime.hpp`), with one or two handles."""

    ON = 1
    """The next piece of work is on this stream."""
    RECORD = 2
    """An event on a stream."""
    WAIT = 3
    """A stream for an event."""
    STREAM_DONE = 4
    EVENT_DONE = 5


class StreamOrder:
    """The order of one call's work, while it is recorded."""

    def __init__(self) -> None:
        self._clocks: dict[int, Clock] = {_LEGACY: {_LEGACY: 1}}
        self._work: dict[int, list[int]] = {_LEGACY: [INPUTS]}
        self._events: dict[int, Clock] = {}
        self._host: Clock = {}
        self._next = _LEGACY
        self._pairs = 0
        self._unordered: list[tuple[int, tuple[int, ...]]] = []

    def note(self, what: Ordering, one: int, other: int) -> None:
        """A call that makes, waits for or records an event, or waits for a stream."""
        match what:
            case Ordering.ON:
                self._next = one
            case Ordering.RECORD:
                self._events[one] = dict(self._now(other))
            case Ordering.WAIT:
                _join(self._now(one), self._events.get(other, {}))
            case Ordering.STREAM_DONE:
                _join(self._host, self._now(one))
            case Ordering.EVENT_DONE:
                _join(self._host, self._events.get(one, {}))

    def all_done(self) -> None:
        """The host waited for the device."""
        for stream in list(self._clocks):
            _join(self._host, self._now(stream))

    def work(self, number: int, stream: int | None = None) -> None:
        """A piece of work. stream: None: the one that `Ordering.ON` named, or the default."""
        stream = self._next if stream is None else stream
        self._next = _LEGACY
        clock = self._now(stream)
        name = _name(stream)
        if len(self._clocks) > 1:
            before = tuple(
                earlier
                for other, numbers in self._work.items()
                if other != name
                for earlier in numbers[clock.get(other, 0) :]
            )
            self._pairs += len(before)
            if self._pairs > _MAX_PAIRS:
                raise CandidateFault(
                    Status.TIMEOUT,
                    "one call asks for too much work on streams that wait for nothing",
                )
            if before:
                self._unordered.append((number, tuple(sorted(before))))
        numbers = self._work.setdefault(name, [])
        numbers.append(number)
        clock[name] = len(numbers)

    def unordered(self, operations: int) -> Unordered:
        """The pairs that nothing orders. operations: of the call, which ends here."""
        self.work(operations, _LEGACY)
        return tuple(self._unordered)

    def _now(self, stream: int) -> Clock:
        """What is over before the stream's next piece of work begins."""
        name = _name(stream)
        clock = self._clocks.setdefault(name, {})
        _join(clock, self._host)
        if name == _LEGACY:
            for other, theirs in self._clocks.items():
                if not other & _NON_BLOCKING:
                    _join(clock, theirs)
        elif not name & _NON_BLOCKING:
            _join(clock, self._clocks[_LEGACY])
        return clock


def _name(stream: int) -> int:
    return _LEGACY if stream in _LEGACY_HANDLES else stream


def _join(into: Clock, other: Clock) -> None:
    for stream, place in list(other.items()):
        into[stream] = max(into.get(stream, 0), place)
