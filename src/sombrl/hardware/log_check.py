"""Whether a recorded episode says what it should: encoder, action stack, period, heading, and the delay of the car.

For adapters: a frame that is turned, an action stack in the other order or a driver with another delay all look like a
car that is hard to learn. Here they are a sentence.
"""

import numpy as np

from sombrl.hardware.backend import Observation
from sombrl.hardware.encoding import ACTION_DIM, STACK, ActionStack, encode
from sombrl.hardware.episode import Episode

SLOW = 0.3  # m/s, below which a heading cannot be compared with a direction of motion
MOST_LAG = 10  # periods
CLEARLY = 0.7  # a lag must leave less than this share of what its neighbours leave unexplained


def check_log(episode: Episode) -> list[tuple[str, str]]:
    """(level, sentence) for every check: "ok", "warning" or "error"."""
    return [
        _encoder(episode),
        _stack(episode),
        _period(episode),
        _heading(episode),
        _delay(episode),
        _frames(episode),
    ]


def _encoder(episode: Episode) -> tuple[str, str]:
    stack = ActionStack()
    difference = 0.0
    for k in range(episode.length + 1):
        frame = Observation(0.0, episode.pose[k], episode.twist[k], 0, True)
        difference = max(difference, float(np.abs(encode(frame, stack)[:7] - episode.obs[k, :7]).max()))
    level = "ok" if difference < 1e-5 else "error"
    return level, f"encoded observations differ from their frames by at most {difference:.1e}."


def _stack(episode: Episode) -> tuple[str, str]:
    shown = episode.obs[:, 7:].reshape(-1, STACK, ACTION_DIM)
    whole = np.diff(episode.slot) == 1
    shifted = np.concatenate([shown[:-1, 1:], episode.action[:, None]], axis=1)
    wrong = int(np.sum(np.any(shifted != shown[1:], axis=(1, 2)) & whole))
    if wrong:
        return "error", f"{wrong} action stacks are not the one before, moved up by the action that was sent."
    return "ok", "every action stack is the one before, oldest first, moved up by the action that was sent."


def _period(episode: Episode) -> tuple[str, str]:
    """Displacement against velocity: the slope is the time between frames, whatever the stamps say."""
    good = episode.valid
    moved = np.diff(episode.pose[:, :2], axis=0)[good]
    speed = 0.5 * (episode.twist[1:, :2] + episode.twist[:-1, :2])[good]
    if np.sum(speed**2) < 1e-2:
        return "warning", "the car hardly moved: its period cannot be measured."
    measured = float(np.sum(moved * speed) / np.sum(speed**2))
    sentence = f"positions and velocities agree on a period of {1e3 * measured:.1f} ms"
    level = "ok" if abs(measured / episode.meta["period"] - 1.0) < 0.1 else "error"
    return level, f"{sentence}; the loop's is {1e3 * episode.meta['period']:.1f} ms."


def _heading(episode: Episode) -> tuple[str, str]:
    good = episode.seen & (np.hypot(episode.twist[:, 0], episode.twist[:, 1]) > SLOW)
    if good.sum() < 10:
        return "warning", "the car was hardly ever fast enough to compare its heading with its motion."
    off = np.arctan2(episode.twist[good, 1], episode.twist[good, 0]) - episode.pose[good, 2]
    off = np.abs((off + np.pi / 2) % np.pi - np.pi / 2)  # it may drive backwards
    degrees = float(np.degrees(np.median(off)))
    level = "ok" if degrees < 20 else "error"
    return level, f"heading and direction of motion are {degrees:.0f}° apart (median)."


def _delay(episode: Episode) -> tuple[str, str]:
    """The lag at which the throttle explains the acceleration along the car best."""
    theta, twist = episode.pose[:, 2], episode.twist
    forward = twist[:, 0] * np.cos(theta) + twist[:, 1] * np.sin(theta)
    gained, throttle = np.diff(forward), episode.action[:, 1].astype(float)
    scores = []
    for lag in range(MOST_LAG + 1):
        good = episode.valid[lag:]
        sent, felt, before = throttle[: len(throttle) - lag][good], gained[lag:][good], forward[lag:-1][good]
        if good.sum() < 20 or np.std(sent) < 0.05:
            return "warning", "too little throttle was given to measure the delay of the car."
        design = np.stack([sent, before, np.ones_like(sent)], axis=1)
        residual = felt - design @ np.linalg.lstsq(design, felt, rcond=None)[0]
        scores.append(float(np.sum(residual**2)))
    lag = int(np.argmin(scores))
    beside = [scores[other] for other in (lag - 1, lag + 1) if 0 <= other <= MOST_LAG]
    if scores[lag] > CLEARLY * min(beside):
        return "warning", "the throttle varied too slowly to measure the delay of the car."
    level = "ok" if lag == STACK else "warning"
    return level, f"the car obeys its throttle {lag} periods after it was sent; the stack has {STACK} actions."


def _frames(episode: Episode) -> tuple[str, str]:
    lost, timing = float(np.mean(~episode.seen)), episode.timing()
    level = "ok" if lost < 0.02 and timing["overruns"] == 0 else "warning"
    return level, (
        f"{100 * lost:.1f} % of the ticks had no good frame; ticks were late by {timing['late_p99_ms']:.2f} ms (p99), "
        f"overruns {timing['overruns']:.0f}."
    )
