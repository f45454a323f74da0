"""The controller's process: wait for policy n, drive episode n, commit it; for all n. The car stands in between."""

import contextlib
import dataclasses
import math
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sombrl.errors import RunFault
from sombrl.hardware.backend import START, CarBackend, Observation, is_at_start
from sombrl.hardware.campaign import Campaign, CampaignConfig
from sombrl.hardware.control_loop import run_episode
from sombrl.hardware.episode import Episode
from sombrl.hardware.files import EventLog, timestamp
from sombrl.hardware.learner import LearnerClient, Lost
from sombrl.hardware.policy import Actor, drive_home
from sombrl.hardware.supervisor import Supervisor

PARK_EVERY = 0.03  # seconds between two neutral commands while a policy is waited for
MOST_EMPTY = 3  # attempts at an episode that give not one transition
HOME_STEPS = 200  # actions on the way back to the start


class Stopped(Exception):
    """The operator has stopped the campaign; it can be resumed."""


class Operator:
    """Whether Ctrl-C, SIGTERM or the file STOP asked for a stop. Inside `with`, a signal does nothing else.

    The signals of a training run (`runs/signals.py`) raise, and a second one raises anywhere; the control loop must
    come to its own end, in which the car is stopped, so it asks at every tick instead.
    """

    def __init__(self, stop_path: Path):
        self._path, self._asked = stop_path, threading.Event()
        self._old: dict[int, Any] = {}

    def __call__(self) -> bool:
        """True from then on; a look at the folder, microseconds."""
        if not self._asked.is_set() and self._path.exists():
            self._asked.set()
        return self._asked.is_set()

    def __enter__(self) -> "Operator":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, lambda *_: self._asked.set())
        return self

    def __exit__(self, *exc: object) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)


@dataclasses.dataclass
class Controller:
    """Everything that takes part in driving a campaign."""

    campaign: Campaign
    backend: CarBackend
    learner: LearnerClient
    restarts: int = 1
    """How often per policy a learner that died is started again."""
    tell: Callable[[str], None] = print

    def run(self) -> None:
        """Until all episodes are committed. `Stopped`, `SombrlError` or `RunFault` otherwise; the car stands then."""
        campaign, config = self.campaign, self.campaign.config
        campaign.stop_path.unlink(missing_ok=True)  # it was for an earlier run
        log = EventLog(campaign.events_path)
        operator = Operator(campaign.stop_path)
        supervisor = Supervisor(self.backend, config.supervisor, log, operator)
        try:
            with operator:
                self._resume(log)
                self.learner.start()
                while (number := campaign.committed()) < config.episodes:
                    actor, meta = self._policy(number, supervisor, operator)
                    episode = self._episode(number, actor, config, supervisor)
                    self._commit(number, episode, meta, log)
                    if episode.end == "operator":
                        raise Stopped(f"stopped by the operator in episode {number}")
        finally:
            with contextlib.suppress(Exception):
                supervisor.close()
            self.learner.close()
            log.close()

    def _resume(self, log: EventLog) -> None:
        """Check what is there, and say what is thrown away."""
        committed = self.campaign.committed()
        self.campaign.episodes(committed)  # a damaged one is told now, not by the learner in an hour
        self.campaign.folder.truncate(committed)
        begun = [row for row in EventLog.read(self.campaign.events_path) if row["event"] in ("begin", "end")]
        if begun and begun[-1]["event"] == "begin":
            log.add("discarded", episode=begun[-1]["episode"], reason="the controller ended in the middle of it")
            self.tell(f"episode {begun[-1]['episode']} was cut short and will be driven again")

    def _policy(self, number: int, supervisor: Supervisor, operator: Operator) -> tuple[Actor, dict[str, Any]]:
        """Wait for the policy, with the car parked and an eye on the learner."""
        campaign, path, lost = self.campaign, self.campaign.policy_path(number), 0
        self.learner.forget_silence()
        start = time.monotonic()
        while not path.exists():
            supervisor.park()
            if operator():
                supervisor.log.add("abort", episode=number, reason="operator", while_="training")
                raise Stopped(f"stopped by the operator before episode {number}")
            try:
                self.learner.check()
            except Lost as error:
                if path.exists():
                    break
                supervisor.park()
                lost += 1
                supervisor.log.add("learner-lost", episode=number, reason=str(error), car="stopped", lost=lost)
                if lost > self.restarts or self.learner.external:
                    raise
                self.tell(f"{error} Starting it again.")
                self.learner.start()
            time.sleep(PARK_EVERY)
        self.tell(f"policy {number} after {time.monotonic() - start:.1f} s")
        return campaign.policy(number)

    def _episode(self, number: int, actor: Actor, config: CampaignConfig, supervisor: Supervisor) -> Episode:
        """One that has at least one transition to learn from."""
        for _ in range(MOST_EMPTY):
            self._to_start(number, config, supervisor)
            supervisor.log.add("begin", episode=number)
            started = timestamp()
            options: dict[str, Any] = {"period": 1.0 / config.rate, "margin_factor": config.margin_factor}
            episode = run_episode(self.backend, actor, supervisor, steps=config.steps, number=number, **options)
            episode.meta.update(started=started, interventions=supervisor.interventions)
            supervisor.log.add("end", episode=number, reason=episode.end, valid=int(episode.valid.sum()))
            if episode.valid.any():
                return episode
            if episode.end == "operator":
                raise Stopped(f"stopped by the operator at the beginning of episode {number}")
            self.tell(f"episode {number} ended ({episode.end}) without a transition: again")
        raise RunFault(f"{MOST_EMPTY} attempts at episode {number} gave no transition: see interventions.jsonl.")

    def _to_start(self, number: int, config: CampaignConfig, supervisor: Supervisor) -> None:
        """The car stands at the start, seen by motion capture, in the field; otherwise nothing is driven."""
        if config.reset_policy is not None and not is_home(self.backend.observe()):
            home = drive_home(Actor.load(Path(config.reset_policy))[0])
            options: dict[str, Any] = {"steps": HOME_STEPS, "number": number, "period": 1.0 / config.rate}
            way = run_episode(self.backend, home, supervisor, until=is_home, **options)
            supervisor.log.add("driven-home", episode=number, reason=way.end, steps=way.length)
            if way.end == "operator":
                raise Stopped(f"stopped by the operator on the way to the start of episode {number}")
        frame = self.backend.reset(config.reset, episode=number)
        speed = math.hypot(*frame.twist[:2])
        if not frame.valid or not config.supervisor.inside(frame) or not speed < 0.5:
            where = f"it is at ({frame.pose[0]:.2f}, {frame.pose[1]:.2f}), {speed:.2f} m/s"
            seen = where if frame.valid else "motion capture does not see it"
            raise RunFault(f"the car is not ready for episode {number}: {seen}; put it to {START[:2]} and resume.")
        if config.reset == "auto" and not is_at_start(frame, away=0.4, turned=0.8, speed=0.3):
            raise RunFault(f"the reset policy did not bring the car home for episode {number}: carry it and resume.")

    def _commit(self, number: int, episode: Episode, meta: dict[str, Any], log: EventLog) -> None:
        row = metrics_row(episode, meta)
        log.sync()
        self.campaign.commit(number, episode, row)
        self.tell(
            f"episode {number}: return {episode.total_reward:.2f}, {episode.end}, {row['rollout/valid']} transitions, "
            f"{row['safety/interventions']} interventions, late p99 {row['time/late_p99_ms']:.2f} ms"
        )


def is_home(seen: Observation) -> bool:
    """Whether the car is near enough to the start, and slow enough, for an episode to begin."""
    return is_at_start(seen, away=0.2, turned=0.4, speed=0.3)


def metrics_row(episode: Episode, meta: dict[str, Any]) -> dict[str, Any]:
    """What metrics.jsonl says of an episode and of the policy that drove it."""
    return {
        "rollout/ep_rew_mean": episode.total_reward,
        "rollout/ep_len_mean": episode.length,
        "rollout/valid": int(episode.valid.sum()),
        "rollout/end": episode.end,
        "safety/interventions": int(episode.meta.get("interventions", 0)),
        **{f"learner/{name}": value for name, value in meta.get("metrics", {}).items()},
        "time/learner_s": meta.get("seconds"),
        **{f"time/{name}": value for name, value in episode.timing().items()},
    }
