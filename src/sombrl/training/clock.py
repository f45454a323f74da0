"""Wall-clock seconds of the stages of an iteration."""

import contextlib
import time
from collections.abc import Iterator


class Clock:
    """Adds up the seconds that each stage takes."""

    def __init__(self, *stages: str):
        self._start = time.perf_counter()
        self._seconds = dict.fromkeys(stages, 0.0)

    @contextlib.contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time a stage; wait inside for what the device computes, or it is timed where it is waited for."""
        start = time.perf_counter()
        yield
        self._seconds[stage] = self._seconds.get(stage, 0.0) + time.perf_counter() - start

    def seconds(self, rest: str | None = None) -> dict[str, float]:
        """By stage; what lies between the stages since the start is put down under `rest`."""
        if rest is None:
            return dict(self._seconds)
        whole = time.perf_counter() - self._start
        return self._seconds | {rest: whole - sum(self._seconds.values())}
