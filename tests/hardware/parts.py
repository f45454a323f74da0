"""Policies, trainers and cars for the tests; the trainers and cars also by name, module:function."""

import contextlib
import hashlib
import threading
import time
from pathlib import Path

import numpy as np

from sombrl.hardware.backend import CarBackend
from sombrl.hardware.campaign import Campaign
from sombrl.hardware.learner import LearnerClient
from sombrl.hardware.policy import Actor
from sombrl.hardware.registry import read_options
from sombrl.hardware.remote import RemoteBackend
from sombrl.hardware.server import serve
from sombrl.hardware.sim_backend import SimBackend, SimConfig

ROOT = Path(__file__).resolve().parents[2]


class Car(SimBackend):
    """A simulated car whose frames can be lost at will, and whose true state can be seen."""

    def __init__(self, config):
        self.blackouts = []
        super().__init__(config)

    def blackout(self, start, end):
        """Lose all frames between two times after the next or last reset."""
        self.blackouts.append((start, end))

    def truth(self):
        """Where the car really is now; velocities in its own frame, θ not wrapped."""
        with self._lock:
            self._advance(self.clock.now())
            return self._moving

    def throttle(self):
        """What drives the car now, in hardware units."""
        with self._lock:
            self._advance(self.clock.now())
            return self._action[1]

    def _frame_lost(self):
        lost, now = super()._frame_lost(), self.clock.now()
        return lost or any(start <= now - self._began < end for start, end in self.blackouts)


def simulated(**options) -> Car:
    return Car(SimConfig(clock="simulated", **options))


def constant(steer=0.0, throttle=0.0):
    return lambda obs: np.array([steer, throttle])


class White:
    """Independent actions, remembered in order."""

    def __init__(self, seed=0, size=1.0):
        self.rng, self.size, self.actions = np.random.default_rng(seed), size, []

    def __call__(self, obs):
        self.actions.append(self.size * self.rng.uniform(-1.0, 1.0, 2))
        return self.actions[-1]


def random_actor(*seed, obs_dim=13, hidden=8, outputs=4) -> Actor:
    rng = np.random.default_rng(list(seed))
    weights = (rng.standard_normal((obs_dim, hidden)) * 0.3, rng.standard_normal((hidden, outputs)) * 0.3)
    biases = (np.zeros(hidden), np.zeros(outputs))
    as_float = [tuple(array.astype(np.float32) for array in group) for group in (weights, biases)]
    return Actor.mlp(*as_float)


def hashing(episodes, config, number, seed, scratch):
    """A policy that depends on every bit of the episodes before it; takes `seconds`, and may fail at `fail_at`."""
    options = read_options(config.trainer_options, "--trainer-options")
    if options.get("fail_at") == number:
        raise ValueError("no gradient today")
    deadline = time.monotonic() + options.get("seconds", 0.0)
    while time.monotonic() < deadline:
        time.sleep(0.01)
    digest = hashlib.blake2b(digest_size=8)
    for episode in episodes:
        digest.update(episode.obs.tobytes() + episode.action.tobytes() + episode.valid.tobytes())
    actor = random_actor(number, seed, int.from_bytes(digest.digest(), "little"))
    return actor, {"loss": 1.0 / (1 + number)}


class Slow(SimBackend):
    """Simulated time, but a look takes a while: an episode that can be killed in its middle and yet is repeatable."""

    def observe(self):
        time.sleep(0.02)
        return super().observe()


def slow_car(**options) -> CarBackend:
    return Slow(SimConfig(clock="simulated", **options))


class Inline(LearnerClient):
    """A learner without a process: trains when it is asked whether it is well."""

    def __init__(self, campaign: Campaign, train=hashing):
        super().__init__(campaign)
        self.train = train

    def start(self):
        pass

    def check(self):
        campaign, number = self.campaign, self.campaign.missing_policy()
        if number is not None:
            config = campaign.config
            actor, metrics = self.train(campaign.episodes(number), config, number, config.seed, campaign.learner)
            actor.save(campaign.policy_path(number), {"metrics": metrics, "seconds": 0.0})


class Recorded(Car):
    """Remembers what it was sent."""

    def __init__(self, config):
        self.sent = []
        super().__init__(config)

    def _send(self, now, steer, throttle):
        self.sent.append((now, steer, throttle))
        super()._send(now, steer, throttle)


def served(address, car=None, limits=None, **options):
    """A car in this process that others can drive; the simulated one if no other is given."""
    car, ready = Recorded(SimConfig(**options)) if car is None else car, threading.Event()
    threading.Thread(target=serve, args=(car, address), kwargs={"config": limits, "ready": ready}, daemon=True).start()
    assert ready.wait(60)
    return car


@contextlib.contextmanager
def remote(address, **options):
    """The controller's end, connected."""
    with contextlib.closing(RemoteBackend(address, **{"patience": 20.0, **options})) as backend:
        backend.connect()
        yield backend
