"""Ctrl-C and SIGTERM during a run: the first stops it where a resumed run is bit-exact, a second at once."""

import contextlib
import gc
import os
import select
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

PATIENCE = 15.0
"""Seconds after SIGTERM until a run is stopped at once: schedulers kill after about 30, and a save takes time."""
INSIST = 0.1  # seconds between attempts to stop at once: some moments do not let go
ONE_PRESS = 0.3  # seconds: signals this close are one, which a launcher has passed on as well as the terminal


class Signals:
    """What a run was told from outside. Inside `with`, a signal raises at `decision` or `report`, a second one at once.

    `rewinds`: an iteration that was begun can be taken back exactly, so the run may stop at any decision. Signals
    come to the main thread alone: elsewhere this does nothing.
    """

    def __init__(self, rewinds: bool):
        self._rewinds = rewinds
        self._asked = self._twice = False
        self._held = False  # no signal raises: something must come to its end, or one has raised
        self._old: dict[int, Any] = {}
        self._began, self._done, self._length = time.monotonic(), 0, 0

    def __enter__(self) -> "Signals":
        """Listen."""
        self._main = threading.current_thread() is threading.main_thread()
        if not self._main:
            return self
        self._hear, self._say = os.pipe()
        os.set_blocking(self._say, False)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._wakeup = signal.set_wakeup_fd(self._say, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            old = signal.getsignal(number)
            if old is not None and (number, old) != (signal.SIGINT, signal.SIG_IGN):  # nohup stays nohup
                self._old[number] = old
                signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        """Leave signals to who had them before."""
        if not self._main:
            return
        self._held = True
        os.write(self._say, b"\0")
        self._listener.join()
        for number, old in self._old.items():
            signal.signal(number, old)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._hear)
        os.close(self._say)
        if self._asked and kind is None:
            raise KeyboardInterrupt  # too late to stop this, but there may be more to do

    def decision(self, t: int, length: int) -> None:
        """Decision `t` of `length` in this iteration is taken."""
        if t == 0:
            self._began = time.monotonic()  # what was compiled before says nothing about the decisions to come
        self._done, self._length = t + 1, length
        if self._twice or (self._asked and self._rewinds):
            self._stop()

    def report(self) -> None:
        """An iteration is at its end and recorded: here a run can always stop."""
        self._done = 0
        if self._asked:
            self._stop()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """What is done in here comes to its end."""
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before
        if self._twice and not before:
            self._stop()

    def mute(self) -> None:
        """From here on nothing is stopped by a signal."""
        self._held = True

    def _stop(self) -> None:
        self._held = True  # what follows is the save
        raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        if self._twice and not self._held and not _swallows(frame):  # the listener tries again
            self._stop()

    def _listen(self) -> None:
        """Count signals and answer them. A thread does: Python's handlers wait for whatever program is running."""
        presses, last = 0, -ONE_PRESS
        deadline: float | None = None
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._hear], [], [], left)[0]:
                self._at_once()
                deadline = time.monotonic() + INSIST
                continue
            for number in os.read(self._hear, 64):
                if number == 0:
                    return
                if number not in (signal.SIGINT, signal.SIGTERM) or time.monotonic() - last < ONE_PRESS:
                    continue
                presses, last = presses + 1, time.monotonic()
                if presses == 1:
                    _tell(self._answer(number))
                    deadline = last + PATIENCE if number == signal.SIGTERM else None
                elif presses == 2:
                    deadline = last

    def _at_once(self) -> None:
        if not self._twice:
            _tell("stopping at once; a program that is running, or a checkpoint that is being written, ends first")
        self._twice = True
        # The handler may have run before this was known. To the thread itself, so that it wakes from waiting too.
        signal.pthread_kill(threading.main_thread().ident or 0, next(iter(self._old)))

    def _answer(self, number: int) -> str:
        if self._rewinds:
            return "stopping at the next decision; a fit or a compilation that is running ends first"
        since, done, length = time.monotonic() - self._began, self._done, self._length  # read once: the run goes on
        about = f", in about {since / (done - 1) * (length - done):.0f} s" if done > 1 else ""
        if number == signal.SIGTERM:
            sooner = f"after {PATIENCE:.0f} s without it, as soon as the program or compilation that is running ends"
            return f"stopping after this report{about}; {sooner}"
        return f"stopping after this report{about}; press Ctrl-C again to stop at once"


def _swallows(frame: FrameType | None) -> bool:
    """Whether Python would ignore what is raised here: in callbacks of its garbage collector (JAX has one) and of weak
    references, and in finalisers."""
    callbacks = [getattr(callback, "__code__", None) for callback in gc.callbacks]
    while frame is not None:
        code = frame.f_code
        if code in callbacks or code.co_name == "__del__" or code.co_filename == weakref.__file__:
            return True
        frame = frame.f_back
    return False


def _tell(sentence: str) -> None:
    with contextlib.suppress(Exception):  # a terminal that went away ends no run
        print(f"sombrl: {sentence}", file=sys.stderr, flush=True)


class terminate_as_interrupt:
    """Lets SIGTERM (a scheduler's preemption) end a command as Ctrl-C does."""

    def __enter__(self) -> None:
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            self._old = signal.signal(signal.SIGTERM, _raise_interrupt)

    def __exit__(self, *exc: object) -> None:
        if self._main:
            signal.signal(signal.SIGTERM, self._old)


def _raise_interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
