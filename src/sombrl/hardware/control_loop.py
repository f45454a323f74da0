"""30 times a second: observe, encode, ask the policy, let the supervisor send. Free of JAX, and of waiting.

Ticks are due at start + k · period, by the clock and not after each other, so lateness does not add up. A tick that
takes longer than its period is an overrun: the periods it has used up are left out, never caught up with.
"""

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sombrl.errors import RunFault
from sombrl.hardware.backend import PERIOD, AbstractClock, CarBackend, Observation, real_time_priority
from sombrl.hardware.encoding import ACTION_DIM, OBS_DIM, STACK, ActionStack, encode, reward
from sombrl.hardware.episode import REASONS, Episode
from sombrl.hardware.policy import Policy
from sombrl.hardware.supervisor import Supervisor

UNEVEN = 0.5
"""A transition counts if its frames are one period apart, up to this share of it; and commands that were later than
this share of a period are not certain to have been the car's in theirs."""

FRAME = np.dtype(
    [
        ("stamp", float),
        ("pose", float, 3),
        ("twist", float, 3),
        ("frame_id", np.int64),
        ("seen", bool),
        ("obs", np.float32, OBS_DIM),
        ("slot", np.int64),
        ("woke", float),
    ]
)
"""What is recorded of every look at the car; the names are those of `Episode`."""
ACTION = np.dtype(
    [
        ("proposed", float, ACTION_DIM),
        ("action", np.float32, ACTION_DIM),
        ("reason", np.int8),
        ("work", float),
        ("certain", bool),  # whether the stack that it was based on is known for certain
    ]
)
"""And of every action."""


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
    in every case when this returns or raises."""
    frames, actions, t = np.zeros(steps + 1, FRAME), np.zeros(steps, ACTION), 0
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
                obs, since = encode(known, stack), known.stamp - start
                frames[t] = since, known.pose, known.twist, known.frame_id, supervisor.good, obs, slot, woke - due
                if end is None and (t == steps or until(known)):
                    end = "completed"
                if end is not None:
                    break
                proposed = _ask(policy, obs)
                sent = supervisor.act(proposed, due)
                done = clock.now()
                shown = proposed if proposed.shape == (ACTION_DIM,) else np.full(ACTION_DIM, np.nan)
                actions[t] = shown, sent.action, REASONS.index(sent.reason), done - woke, stack.certain
                missed = max(0, int((done - start) / period - slot - 1e-9))
                for _ in range(missed):
                    stack.push(held, certain=False)  # what the car had in the meantime
                in_time = sent.certain and not missed and done - due <= UNEVEN * period
                stack.push(sent.action, certain=in_time)
                held, slot, t = sent.action, slot + 1 + missed, t + 1
        finally:
            supervisor.end()
    meta: dict[str, Any] = {
        "end": end,
        "number": number,
        "priority": priority,
        "health": dataclasses.asdict(backend.health()),
    }
    meta |= {"period": period, "stack": STACK, "margin_factor": margin_factor}
    return _recorded(frames[: t + 1], actions[:t], meta)


def _recorded(frames: np.ndarray, actions: np.ndarray, meta: dict[str, Any]) -> Episode:
    """The arrays as an episode, with its rewards and which transitions are certain."""
    columns = {name: table[name].copy() for table in (frames, actions) for name in table.dtype.names or ()}
    period, seen, certain = meta["period"], columns["seen"], columns.pop("certain")
    uneven = np.abs(np.diff(columns["stamp"]) - period)
    one_period = (np.diff(columns["slot"]) == 1) & (uneven <= UNEVEN * period)
    driving = columns["obs"][:-1, 7 : 7 + ACTION_DIM]  # the oldest of the stack
    paid = [reward(*rows, meta["margin_factor"]) for rows in zip(columns["pose"][1:], driving, strict=True)]
    return Episode(**columns, reward=np.array(paid), valid=seen[:-1] & seen[1:] & certain & one_period, meta=meta)


def _ask(policy: Policy, obs: np.ndarray) -> np.ndarray:
    try:
        return np.asarray(policy(obs), float)
    except Exception as error:
        raise RunFault(f"the policy failed with {type(error).__name__}: {error}.") from error


@contextlib.contextmanager
def _undisturbed(clock: AbstractClock) -> Iterator[str]:
    """Keep garbage collection, and libraries that load at their first use, out of the loop."""
    np.zeros((1, 1), np.float32) @ np.zeros(1, np.float32)
    collect = gc.isenabled()
    gc.collect()
    gc.disable()  # a collection in the middle of a tick would be milliseconds
    try:
        with real_time_priority(clock) as priority:
            yield priority
    finally:
        if collect:
            gc.enable()
