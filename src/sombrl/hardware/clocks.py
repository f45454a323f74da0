"""Time, as a backend has it: the machine's own, or a number that only sleeping moves."""

import abc
import contextlib
import os
import time
from collections.abc import Iterator

PRIORITY = 10
"""Of real-time scheduling, where the system lets us have it: above everything that is not a driver."""


class AbstractClock(abc.ABC):
    """Seconds from some beginning."""

    real: bool
    """Whether it goes on by itself."""

    @abc.abstractmethod
    def now(self) -> float:
        """The time."""

    @abc.abstractmethod
    def sleep_until(self, moment: float) -> None:
        """Return at `moment`, or at once if it is over."""


class RealClock(AbstractClock):
    """The machine's monotonic clock, the same for all its processes."""

    real = True

    def now(self) -> float:
        """Seconds since the machine was started."""
        return time.monotonic()

    def sleep_until(self, moment: float) -> None:
        """Sleep; by tens of microseconds too long on an idle machine, by milliseconds on a busy one."""
        while (left := moment - time.monotonic()) > 0:
            time.sleep(left)


class SimulatedClock(AbstractClock):
    """Time that costs none: whoever sleeps moves it. The same calls then give the same numbers, bit for bit."""

    real = False

    def __init__(self) -> None:
        self._time = 0.0

    def now(self) -> float:
        """The time that was last slept to."""
        return self._time

    def sleep_until(self, moment: float) -> None:
        """Be there."""
        self._time = max(self._time, moment)

    def restart(self) -> None:
        """Begin at 0 again: an episode's numbers must not depend on how many there were before."""
        self._time = 0.0


@contextlib.contextmanager
def foremost(clock: AbstractClock) -> Iterator[str]:
    """Let this thread run as soon as it wakes up, whatever else is busy: "fifo" where that is allowed, else "normal".

    Needs Linux and root, CAP_SYS_NICE or an rtprio limit. On two cores with three busy processes it is the difference
    between ticks that are late by 10 ms and by 0.1 ms.
    """
    before = None
    if clock.real and hasattr(os, "sched_setscheduler"):
        with contextlib.suppress(OSError):
            policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
            before = policy, parameters
    try:
        yield "normal" if before is None else "fifo"
    finally:
        if before is not None:
            os.sched_setscheduler(0, *before)
