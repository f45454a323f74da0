"""30 times a second: observe, encode, ask the policy, let the supervisor send. Free of JAX, and of waiting.

Ticks are due at start + k · period, by the clock and not after each other, so lateness does not add up. A tick that
takes longer than its period is an overrun: the periods it has used up are left out, never caught up with.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sombrl.errors import RunFault
from sombrl.hardware.backend import PERIOD, CarBackend, Observation
from sombrl.hardware.clocks import AbstractClock, foremost
from sombrl.hardware.encoding import ACTION_DIM, OBS_DIM, STACK, ActionStack, encode, reward
from sombrl.hardware.episode import REASONS, Episode
from sombrl.hardware.supervisor import Supervisor

Policy = Callable[[np.ndarray], np.ndarray]

UNEVEN = 0.5
"""A transition counts if its frames are one period apart, up to this share of it; and commands that were later than
this share of a period are not certain to have been the car's in theirs."""


def run_episode(
    backend: CarBackend,
    policy: Policy,
    supervisor: Supervisor,
    *,
    steps: int,
    number: int = 0,
    period: float = PERIOD,
    margin_factor: float = 5.0,
    until: Callable[[Observation], bool] = lambda known: False,
) -> Episode:
    """Drive `steps` actions, fewer if the supervisor ends it or `until(newest good frame)` is true. The car is stopped
    when this returns or raises, whatever happened."""
    rows = _Rows(steps, period, margin_factor)
    clock, stack, slot, held = backend.clock, ActionStack(), 0, np.zeros(ACTION_DIM)
    with _undisturbed(clock) as priority:
        try:
            known = backend.observe()
            start = clock.now() + period
            supervisor.begin(number, known, start)
            while True:
                due = start + slot * period
                clock.sleep_until(due)
                woke = clock.now()
                end = supervisor.look(backend.observe())
                known = supervisor.known or known
                obs = encode(known, stack)
                rows.see(known, supervisor.good, obs, slot, woke - due, start)
                if end is None and (rows.full or until(known)):
                    end = "completed"
                if end is not None:
                    break
                proposed = _ask(policy, obs)
                sent = supervisor.act(proposed, due)
                done = clock.now()
                rows.act(proposed, sent.action, REASONS.index(sent.reason), stack.certain, done - woke)
                missed = max(0, int((done - start) / period - slot - 1e-9))
                for _ in range(missed):
                    stack.push(held, certain=False)  # what the car had in the meantime
                in_time = sent.certain and not missed and done - due <= UNEVEN * period
                stack.push(sent.action, certain=in_time)
                held, slot = sent.action, slot + 1 + missed
        finally:
            supervisor.end()
    return rows.episode({"end": end, "number": number, "priority": priority, "health": backend.health().to_json()})


def _ask(policy: Policy, obs: np.ndarray) -> np.ndarray:
    try:
        return np.asarray(policy(obs), float)
    except Exception as error:
        raise RunFault(f"the policy failed with {type(error).__name__}: {error}.") from error


@contextlib.contextmanager
def _undisturbed(clock: AbstractClock) -> Iterator[str]:
    """Nothing of our own gets in the way: no garbage collection, no library that loads at its first use."""
    np.zeros((1, 1), np.float32) @ np.zeros(1, np.float32)
    collect = gc.isenabled()
    gc.collect()
    gc.disable()  # a collection in the middle of a tick would be milliseconds
    try:
        with foremost(clock) as priority:
            yield priority
    finally:
        if collect:
            gc.enable()


class _Rows:
    """An episode while it is written."""

    def __init__(self, steps: int, period: float, margin_factor: float):
        self.steps, self.period, self.margin_factor = steps, period, margin_factor
        more = steps + 1
        self.stamp, self.pose, self.twist = np.zeros(more), np.zeros((more, 3)), np.zeros((more, 3))
        self.frame_id, self.seen, self.slot = np.zeros(more, np.int64), np.zeros(more, bool), np.zeros(more, np.int64)
        self.obs, self.woke = np.zeros((more, OBS_DIM), np.float32), np.zeros(more)
        self.proposed, self.action = np.zeros((steps, ACTION_DIM)), np.zeros((steps, ACTION_DIM), np.float32)
        self.reason, self.work, self.certain = np.zeros(steps, np.int8), np.zeros(steps), np.zeros(steps, bool)
        self.acted = 0

    @property
    def full(self) -> bool:
        return self.acted == self.steps

    def see(self, known: Observation, good: bool, obs: np.ndarray, slot: int, woke: float, start: float) -> None:
        k = self.acted
        self.stamp[k], self.pose[k], self.twist[k] = known.stamp - start, known.pose, known.twist
        self.frame_id[k], self.seen[k], self.slot[k] = known.frame_id, good, slot
        self.obs[k], self.woke[k] = obs, woke

    def act(self, proposed: np.ndarray, action: np.ndarray, reason: int, certain: bool, work: float) -> None:
        k = self.acted
        self.proposed[k] = proposed if proposed.shape == (ACTION_DIM,) else np.nan
        self.action[k], self.reason[k] = action, reason
        self.certain[k], self.work[k] = certain, work
        self.acted += 1

    def episode(self, meta: dict[str, Any]) -> Episode:
        t = self.acted
        apart = np.diff(self.stamp[: t + 1])
        one_period = (np.diff(self.slot[: t + 1]) == 1) & (np.abs(apart - self.period) <= UNEVEN * self.period)
        driving = self.obs[:t, 7 : 7 + ACTION_DIM]  # the oldest of the stack
        paid = [reward(self.pose[k + 1], driving[k], self.margin_factor) for k in range(t)]
        return Episode(
            stamp=self.stamp[: t + 1],
            pose=self.pose[: t + 1],
            twist=self.twist[: t + 1],
            frame_id=self.frame_id[: t + 1],
            seen=self.seen[: t + 1],
            obs=self.obs[: t + 1],
            proposed=self.proposed[:t],
            action=self.action[:t],
            reason=self.reason[:t],
            reward=np.array(paid),
            valid=self.seen[:t] & self.seen[1 : t + 1] & self.certain[:t] & one_period,
            slot=self.slot[: t + 1],
            woke=self.woke[: t + 1],
            work=self.work[:t],
            meta={**meta, "period": self.period, "stack": STACK, "margin_factor": self.margin_factor},
        )
