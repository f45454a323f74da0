"""A vendor's driver behind the adapter: frames converted, counters read, failures turned into invalid frames."""

import math

import numpy as np
import pytest

from sombrl.hardware.backend import PERIOD, SimulatedClock
from sombrl.hardware.control_loop import run_episode
from sombrl.hardware.sim_backend import SimConfig
from sombrl.hardware.supervisor import Supervisor
from sombrl.hardware.vendor import VendorBackend, VendorConfig, from_mocap
from sombrl.records import RunFault, SombrlError
from tests.hardware.parts import Car, White, constant


class Driver:
    """A vendor's driver of the simulated car: in the frame of motion capture, with its counters."""

    def __init__(self, goal=(0.3, -0.2, 0.1)):
        self.car, self.goal, self.calls = Car(SimConfig(clock="simulated")), goal, []
        self.car.reset("teleport")
        self.invalid, self.broken, self.link = 0, False, True

    def start(self):
        self.calls.append("start")

    def stop(self):
        self.calls.append("stop")

    def control_mode(self):
        self.calls.append("control_mode")

    def set_command(self, command):
        self.calls.append(tuple(command.tolist()))
        self.car._send(self.car.clock.now(), *command.tolist())
        return self.link

    def get_state(self):
        if self.broken:
            raise OSError("cable")
        pose, twist = self.car._measure()
        x, y, theta = pose + np.array(self.goal)
        return np.array([y, x, theta - math.pi, twist[1], twist[0], twist[2]])  # swapped, half a turn back

    def get_mocap_logs(self):
        self.car._advance(self.car.clock.now())
        self.car._health.last_frame += 1
        frame = self.car._health.last_frame
        counts = {"total": frame, "recorded": frame, "requested": frame, "skipped": 0, "invalid": self.invalid}
        return {"last": frame, **counts}


def adapter(**options):
    driver = Driver()
    return driver, VendorBackend(driver, VendorConfig(goal=driver.goal, **options), clock=driver.car.clock)


def test_frame_conversion_by_hand():
    """x and y change places, the heading turns by π, the goal becomes the origin."""
    pose, twist = from_mocap(np.array([2.0, 3.0, 0.5, 0.1, 0.2, 0.7]), goal=(1.0, 0.5, 0.0))
    np.testing.assert_allclose(pose, [3.0 - 1.0, 2.0 - 0.5, 0.5 + math.pi - 2 * math.pi])
    np.testing.assert_allclose(twist, [0.2, 0.1, 0.7])


def test_an_episode_through_the_driver_is_an_episode_on_the_car():
    driver, backend = adapter(warm_up=1.0)
    backend.connect()
    assert driver.calls[:3] == ["start", "control_mode", (0.0, 0.0)] and driver.car.clock.now() == 1.0
    episode = run_episode(backend, White(size=0.5), Supervisor(backend), steps=30)
    assert episode.end == "completed" and episode.valid.all()
    x, y, theta, *_ = driver.car.truth()
    np.testing.assert_allclose(episode.pose[-1, :2], [x, y], atol=0.01)
    assert math.cos(episode.pose[-1, 2] - theta) > 0.999
    commands = [call for call in driver.calls if isinstance(call, tuple)]
    sent = np.array(commands[-31:-1])
    np.testing.assert_allclose(sent, episode.action * np.array([1.0, 0.4]), atol=1e-6)
    health = backend.health()
    assert health.commands == 30 and health.last_frame > 30 and health.invalid_frames == 0
    backend.close()
    assert driver.calls[-2:] == [(0.0, 0.0), "stop"]


def test_bad_frames_are_invalid():
    driver, backend = adapter()
    good = backend.observe()
    assert good.valid and good.stamp == pytest.approx(-0.01)
    driver.invalid = 1
    assert not backend.observe().valid
    assert backend.observe().valid  # counted once
    driver.broken = True
    bad = backend.observe()
    assert not bad.valid and np.isfinite(bad.pose).all()


def test_late_and_failed_commands_are_refused():
    driver, backend = adapter()
    driver.car.clock.sleep_until(1.0)
    assert not backend.command(0.0, 0.2, stamp=1.0 - 2 * PERIOD).accepted
    assert (0.0, 0.2) not in driver.calls
    driver.link = False
    assert not backend.command(0.0, 0.2, stamp=1.0).accepted and backend.health().refused_commands == 2
    driver.set_command = None  # a driver that fails altogether
    backend.stop()
    assert not backend.command(0.0, 0.2, stamp=1.0).accepted


def test_manual_reset_waits_until_the_car_rests_at_the_start():
    """The episode starts once the car has stood at the start for a second; the car is kept still meanwhile."""
    driver, backend = adapter(reset_rest=1.0)
    driver.car._place((0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    clock = driver.car.clock
    carried = []

    class Watched(SimulatedClock):
        def now(self):
            return clock.now()

        def sleep_until(self, moment):
            clock.sleep_until(moment)
            if not carried and clock.now() > 2.0:
                driver.car._place((1.42, -1.04, math.pi, 0.0, 0.0, 0.0))
                carried.append(clock.now())

    backend.clock = Watched()
    observation = backend.reset("manual")
    assert clock.now() == pytest.approx(carried[0] + 1.0, abs=0.2)
    np.testing.assert_allclose(observation.pose[:2], [1.42, -1.04], atol=0.01)
    assert {call for call in driver.calls if isinstance(call, tuple)} == {(0.0, 0.0)}
    with pytest.raises(SombrlError, match="cannot reset by teleport"):
        backend.reset("teleport")
    driver.car._place((0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    backend.config = VendorConfig(reset_patience=3.0)
    with pytest.raises(RunFault, match="not put back"):
        backend.reset("manual")


def test_a_driver_that_does_not_start_is_refused_in_one_sentence():
    driver, backend = adapter()
    driver.start = lambda: 1 / 0
    with pytest.raises(RunFault, match="did not start: ZeroDivisionError"):
        backend.connect()
    with pytest.raises(SombrlError, match="object has no start"):
        VendorBackend(object())


def test_a_driver_that_fails_while_driving_stops_the_car():
    driver, backend = adapter()

    def policy(obs):
        if len(driver.calls) > 10:
            driver.broken = True
        return constant(0.0, 0.3)(obs)

    episode = run_episode(backend, policy, Supervisor(backend), steps=100)
    assert episode.end == "observation-lost" and driver.calls[-1] == (0.0, 0.0)
