"""The simulated car: its delay, its noise, its motion capture, its own watchdog, and its clock."""

import itertools
import time

import numpy as np
import pytest

from sombrl.hardware.backend import PERIOD
from sombrl.hardware.control_loop import run_episode
from sombrl.hardware.encoding import ActionStack, encode
from sombrl.hardware.sim_backend import CAR_2, NOISE, SimConfig, advance
from sombrl.hardware.supervisor import Supervisor
from tests.hardware.parts import Car, White, simulated


def body(pose, twist):
    """What the simulator keeps: velocities in the frame of the car."""
    s, c = np.sin(pose[2]), np.cos(pose[2])
    return (*pose, c * twist[0] + s * twist[1], c * twist[1] - s * twist[0], twist[2])


def test_the_next_state_is_explained_by_the_action_of_three_steps_ago():
    """Exactly, without noise; and the action is where the encoder says: first in the stack."""
    backend, policy = simulated(noise=0.0), White(size=0.8)
    backend.reset("teleport")
    episode = run_episode(backend, policy, Supervisor(backend), steps=40)
    assert episode.valid.all() and episode.length == 40
    sent = np.concatenate([np.zeros((3, 2)), np.array(policy.actions)])  # nothing before the start
    errors = {}
    for lag in (2, 3, 4):
        difference = []
        for t in range(5, 40):
            predicted = advance(CAR_2, body(episode.pose[t], episode.twist[t]), *sent[t + 3 - lag].tolist(), PERIOD)
            difference.append(np.abs(np.array(predicted[:2]) - episode.pose[t + 1, :2]).max())
        errors[lag] = max(difference)
    assert errors[3] < 1e-9 < 1e-4 < min(errors[2], errors[4])
    for t in range(40):
        np.testing.assert_array_equal(episode.obs[t, 7:], sent[t : t + 3].reshape(-1).astype(np.float32))
    np.testing.assert_array_equal(episode.action, np.array(policy.actions, np.float32))


def test_noise_is_the_published_one_and_episodes_repeat():
    backend = simulated()
    backend.reset("teleport", episode=3)
    x, y, theta, *_ = backend.truth()
    seen = [backend.observe() for _ in range(3000)]
    deviations = np.std([[*o.pose, *o.twist] for o in seen], axis=0)
    np.testing.assert_allclose(deviations, NOISE, rtol=0.06)
    np.testing.assert_allclose(np.mean([o.pose[:2] for o in seen], axis=0), [x, y], atol=1e-4)
    again = simulated()
    again.reset("teleport", episode=3)
    assert again.truth() == (x, y, theta, *again.truth()[3:])
    again.reset("teleport", episode=4)
    assert again.truth()[:2] != (x, y)


def test_starts_are_scattered_as_published():
    backend = simulated(noise=0.0)
    poses = np.array([backend.reset("teleport", episode=n).pose for n in range(300)])
    poses[:, 2] %= 2 * np.pi
    low, high = poses.min(axis=0), poses.max(axis=0)
    np.testing.assert_allclose(low, [1.32, -1.14, 0.9 * np.pi], atol=0.01)
    np.testing.assert_allclose(high, [1.52, -0.94, 1.1 * np.pi], atol=0.01)
    assert abs(np.corrcoef(poses[:, 0], poses[:, 2])[0, 1]) < 0.15  # position and heading are independent


def test_the_car_stops_by_itself_when_no_command_comes():
    backend = simulated(noise=0.0, start_spread=0.0)
    backend.reset("teleport")
    for k in range(6):
        backend.clock.sleep_until(k * PERIOD)
        assert backend.command(0.0, 0.4, k * PERIOD).accepted
    last = 5 * PERIOD
    backend.clock.sleep_until(last + 0.1 + 0.099)  # the delay, then just under the watchdog
    assert backend.throttle() == 0.4 and backend.health().watchdog_stops == 0
    backend.clock.sleep_until(last + 0.1 + 0.101)
    assert backend.throttle() == 0.0 and backend.health().watchdog_stops == 1
    speed = backend.truth()[3]
    backend.clock.sleep_until(last + 3.0)
    rolling = speed * np.exp(-(CAR_2.c_m_2**2) / CAR_2.m * (3.0 - 0.201))  # m v' = -c² v
    assert backend.truth()[3] == pytest.approx(rolling, rel=1e-4)


def test_stop_reaches_the_car_after_the_radio_and_late_commands_never():
    backend = simulated(noise=0.0, watchdog=1.0)
    backend.reset("teleport")
    assert backend.command(0.0, 0.4, 0.0).accepted
    backend.clock.sleep_until(0.11)
    assert backend.throttle() == 0.4
    backend.stop()
    ack = backend.command(1.0, 0.4, stamp=0.11 - 2 * PERIOD)
    assert not ack.accepted and ack.late_by == pytest.approx(2 * PERIOD)
    backend.clock.sleep_until(0.2099)
    assert backend.throttle() == 0.4
    backend.clock.sleep_until(0.2101)
    assert backend.throttle() == 0.0 and backend.health().refused_commands == 1


def test_velocities_over_a_window_lag_behind_and_frames_have_their_own_clock():
    """Under constant acceleration, a difference over 6 frames of 120 Hz is the velocity of 25 ms ago."""
    backend = simulated(noise=0.0, start_spread=0.0, velocity_window=6)
    backend.reset("teleport")
    for k in range(15):
        backend.clock.sleep_until(k * PERIOD)
        backend.command(0.0, 0.4, k * PERIOD)
    now = 14.5 * PERIOD
    backend.clock.sleep_until(now)
    seen = backend.observe()
    assert seen.stamp == pytest.approx(np.floor(now * 120) / 120) and seen.frame_id == int(now * 120)
    exact = simulated(noise=0.0, start_spread=0.0)
    exact.reset("teleport")
    for k in range(14):
        exact.clock.sleep_until(k * PERIOD)
        exact.command(0.0, 0.4, k * PERIOD)
    exact.clock.sleep_until(seen.stamp - 3 / 120)
    assert seen.twist[0] == pytest.approx(exact.observe().twist[0], rel=1e-3)
    assert backend.observe().frame_id == seen.frame_id  # no new frame without time passing
    assert backend.health().skipped_frames == seen.frame_id - 1


def test_lost_frames_repeat_the_last_one_as_invalid():
    backend = simulated(frame_loss=0.3)
    backend.reset("teleport")
    seen = [backend.observe() for _ in range(2000)]
    assert np.mean([not o.valid for o in seen]) == pytest.approx(0.3, abs=0.04)
    assert backend.health().invalid_frames == sum(not o.valid for o in seen)
    for before, after in itertools.pairwise(seen):
        assert after.frame_id == before.frame_id + after.valid


def test_in_real_time_the_car_drives_on_between_calls():
    """The speed after 0.15 s, as by the formula for a time between the looks at the clock before and after."""
    backend = Car(SimConfig(noise=0.0, start_spread=0.0, watchdog=10.0))
    backend.reset("teleport")
    before = time.monotonic()
    backend.command(0.0, 0.4, before)
    sent = time.monotonic()
    time.sleep(0.15)
    looked = time.monotonic()
    speed, after = backend.truth()[3], time.monotonic()
    rate = CAR_2.c_m_2**2 / CAR_2.m
    top = CAR_2.c_m_1 / CAR_2.c_m_2**2

    def reached(seconds):
        return top * (1 - np.exp(-rate * (seconds - 0.1)))  # after the radio's delay

    assert 0.99 * reached(looked - sent) <= speed <= 1.01 * reached(after - before)


def test_encode_is_in_float32_with_sine_before_cosine():
    backend = simulated()
    seen = backend.reset("teleport")
    obs = encode(seen, ActionStack())
    assert obs.dtype == np.float32 and obs.shape == (13,)
    np.testing.assert_allclose(np.arctan2(obs[2], obs[3]), seen.pose[2], atol=1e-6)
    np.testing.assert_allclose(obs[4:7], seen.twist, rtol=1e-6)
