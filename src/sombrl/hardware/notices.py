"""Sentences for the person at the machine, by a thread of their own: a terminal that is held must not hold the car."""

import contextlib
import queue
import sys
import threading
import time
from typing import Any

from sombrl.hardware.files import AbstractLog
from sombrl.hardware.messages import to_sentence

MOST_WAITING = 20
EVERY = 0.1  # seconds between two: a flood of them must not fill a disk


class Notices(AbstractLog):
    """Lines on stderr. Where they come faster than they are printed, some are left out."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[str] = queue.Queue(MOST_WAITING)
        threading.Thread(target=self._print, name="notices", daemon=True).start()

    def say(self, sentence: str) -> None:
        """Returns at once."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(to_sentence(sentence))

    def add(self, event: str, **details: Any) -> None:
        """An event of the supervisor."""
        said = [f"{name} {value:.3g}" for name, value in details.items() if isinstance(value, float)]
        self.say(f"{event}: {details.get('reason')}" + f" ({', '.join(said)})" * bool(said))

    def close(self) -> None:
        """Give what waits a moment."""
        deadline = time.monotonic() + 0.5
        while self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)

    def _print(self) -> None:
        while True:
            sentence = self._waiting.get()
            with contextlib.suppress(OSError, ValueError):  # the reader has gone
                print(f"sombrl: {sentence}", file=sys.stderr, flush=True)
            self._waiting.task_done()
            time.sleep(EVERY)
