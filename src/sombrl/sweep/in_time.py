"""`--minutes`: jobs are seen through until their time is over, and end with everything saved.

None is started that cannot save anything in the time left, and time is kept for the others to save what they have.
"""

import time
from collections.abc import Callable, Sequence

from sombrl.records import SombrlError
from sombrl.runs.signals import PATIENCE
from sombrl.sweep.driver import Drive
from sombrl.sweep.pace import Pace, Paces, Watch, name_of
from sombrl.sweep.worker import Job

CLOSING = 10.0  # seconds for tables and figures at the end, and for Python to start before the time begins
FIRST = 30.0  # seconds until a job has saved something, where nothing like it has been measured
SAVE = 3.0  # seconds that a checkpoint takes, where none has been seen
MARGIN = 1.5  # how much longer than the longest seen something may take
LONGEST = 1e6  # minutes: nearly two years


class InTime:
    """Sees a drive through for so many minutes, which begin now. Give it to `complete`."""

    def __init__(
        self,
        minutes: float,
        paces: Paces,
        *,
        enters: Callable[[Job, Sequence[Job]], bool] = lambda job, beside: True,
        least: Callable[[Job], float] = lambda job: FIRST,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`enters`: whether there is a place for a job beside others. `least`: seconds until a job that nothing is
        known of has saved something."""
        self.minutes, self.paces, self._enters, self._least, self._clock = minutes, paces, enters, least, clock
        self._begun = clock()
        self._watch = Watch(paces, clock)

    @property
    def left(self) -> float:
        """Seconds."""
        return self._begun + 60 * self.minutes - self._clock()

    def __call__(self, drive: Drive) -> None:
        """Until all is done, nothing more can be begun, or the time is over."""
        drive.admit = self.admit
        try:
            while drive.busy and self.left > closing_s(self._paces_of(drive.running)):
                drive.step()
                self._watch.look(drive.running)
                if not drive.running and all(self.too_late(job) for job in drive.waiting):
                    break
            self._stop(drive)
        finally:
            self.paces.save()

    def admit(self, job: Job, beside: Sequence[Job]) -> bool:
        """Whether a job may begin now."""
        return not self.too_late(job) and self._enters(job, beside)

    def too_late(self, job: Job) -> bool:
        """Whether a job could save nothing in the time left."""
        first = self.paces.first_s(name_of(job), self._least(job))
        return too_late(self.left, first, self.paces[name_of(job)])

    def _stop(self, drive: Drive) -> None:
        if not drive.running:
            return
        jobs, begun = drive.running, self._clock()
        print(f"the time is nearly over: {len(jobs)} save what they have", flush=True)
        drive.stop()
        self._watch.stopped(jobs, self._clock() - begun)

    def _paces_of(self, jobs: Sequence[Job]) -> list[Pace]:
        return [self.paces[name_of(job)] for job in jobs]


def closing_s(running: Sequence[Pace]) -> float:
    """Seconds before the end at which what runs must be told to stop."""
    return CLOSING + max((_stop_s(pace) for pace in running), default=0.0)


def too_late(left: float, first: float, pace: Pace) -> bool:
    """Whether a job that needs `first` seconds to save something cannot do so in the time left."""
    return left - closing_s([pace]) < first


def check_minutes(minutes: float) -> float:
    """Refuse a time that is none."""
    if not 0 < minutes <= LONGEST:
        raise SombrlError(f"--minutes must be more than 0 and at most {LONGEST:.0f}, not {minutes:g}.")
    return minutes


def _stop_s(pace: Pace) -> float:
    """Seconds from being told to stop to the end. A run may wait so long for its report, then it saves."""
    if pace.stop_s is not None:
        return MARGIN * max(pace.stop_s, pace.checkpoint_s or 0.0)
    return PATIENCE + MARGIN * (pace.checkpoint_s or SAVE)
