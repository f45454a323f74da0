"""Every safety rule: what the car gets, what is logged, how the episode ends, and what may be learned from it."""

import dataclasses
import json
import math
import time

import numpy as np
import pytest

from sombrl.hardware.backend import PERIOD, Ack, Observation, SimulatedClock
from sombrl.hardware.control_loop import run_episode
from sombrl.hardware.episode import REASONS
from sombrl.hardware.files import EventLog
from sombrl.hardware.sim_backend import SimBackend, SimConfig
from sombrl.hardware.supervisor import Supervisor, SupervisorConfig
from sombrl.records import RunFault, SombrlError
from tests.hardware.parts import Car, White, constant


class Recorded(Car):
    """A simulated car that remembers what it was sent."""

    def __init__(self, config):
        self.sent = []
        super().__init__(config)

    def command(self, steer, throttle, stamp):
        self.sent.append((self.clock.now(), steer, throttle))
        return super().command(steer, throttle, stamp)

    def stop(self):
        self.sent.append((self.clock.now(), 0.0, 0.0))
        super().stop()


class Stepped(SimulatedClock):
    """Moved by the test alone, and watched by the supervisor's thread."""

    real = True


def car(**options):
    backend = Recorded(SimConfig(**({"clock": "simulated"} | options)))
    backend.reset("teleport")
    return backend


def drive(backend, policy, steps=40, config=None, **options):
    supervisor = Supervisor(backend, config, **options)
    episode = run_episode(backend, policy, supervisor, steps=steps)
    return episode, supervisor.log.rows


def reasons(episode):
    return [REASONS[i] for i in episode.reason]


def events(rows):
    return [(row["event"], row["reason"]) for row in rows]


def test_throttle_is_scaled_for_the_car_and_not_for_the_data():
    backend = car()
    episode, rows = drive(backend, constant(0.3, -0.5), steps=3)
    assert [sent[1:] for sent in backend.sent[:3]] == [(0.3, -0.2)] * 3
    np.testing.assert_allclose(episode.action, [[0.3, -0.5]] * 3, atol=1e-7)
    np.testing.assert_allclose(episode.obs[3, 7:], [0.3, -0.5] * 3, atol=1e-7)
    assert backend.sent[-1][1:] == (0.0, 0.0) and rows == []  # stopped at the end, nothing to report


def test_outside_the_field_the_car_stops_and_the_episode_ends_with_its_data():
    backend = car(start_spread=0.0, noise=0.0)
    episode, rows = drive(backend, constant(0.0, 1.0), steps=100)
    assert episode.end == "geofence" and episode.length < 100
    assert episode.pose[-1, 0] < -1.4 <= episode.pose[-2, 0]
    assert episode.valid.all() and len(episode.valid) == episode.length > 20
    assert events(rows) == [("abort", "geofence")]
    assert rows[0]["x"] == episode.pose[-1, 0] and rows[0]["tick"] == episode.length
    after = [sent for sent in backend.sent if sent[0] > PERIOD * (episode.length + 0.5)]  # the first tick is at 1
    assert after and all(throttle == 0.0 for _, _, throttle in after)
    speed = backend.truth()[3]
    backend.clock.sleep_until(backend.clock.now() + 2.0)
    assert 0 <= backend.truth()[3] < 0.2 * speed


def test_beyond_the_speed_cap_the_car_may_roll_or_brake_but_not_push():
    cap = SupervisorConfig(speed_cap=1.0, field_x=(-100.0, 100.0), field_y=(-100.0, 100.0))
    episode, rows = drive(car(), constant(0.2, 1.0), steps=100, config=cap)
    speed = np.hypot(episode.twist[:-1, 0], episode.twist[:-1, 1])
    capped = np.array(reasons(episode)) == "speed-cap"
    np.testing.assert_array_equal(capped, speed > 1.0)
    assert (episode.action[capped, 1] == 0).all() and (episode.action[~capped, 1] == 1).all()
    np.testing.assert_allclose(episode.action[:, 0], 0.2, atol=1e-7)  # steering stays
    assert ("intervention", "speed-cap") in events(rows) and ("recovered", "speed-cap") in events(rows)
    assert speed.max() < 1.0 + 8.2 / 1.65 * 5 * PERIOD  # what is in the radio's pipe when it is noticed
    assert episode.end == "completed" and episode.valid.all()
    supervisor = Supervisor(car(), cap)
    fast = Observation(0.0, np.zeros(3), np.array([2.0, 0.0, 0.0]), 1, True)
    supervisor.begin(0, fast, 0.0)
    assert supervisor.act(np.array([0.0, -1.0]), 0.0).action[1] == -1.0  # brakes
    assert supervisor.act(np.array([0.0, 1.0]), 0.0).action[1] == 0.0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_actions_never_reach_the_car(value):
    backend, calls = car(), []

    def policy(obs):
        calls.append(1)
        return np.array([0.5, value]) if 10 <= len(calls) < 13 else np.array([0.5, 0.5])

    episode, rows = drive(backend, policy, steps=20)
    assert np.isfinite([sent[1:] for sent in backend.sent]).all()
    assert [i for i, reason in enumerate(reasons(episode)) if reason == "non-finite-action"] == [9, 10, 11]
    np.testing.assert_array_equal(episode.action[9:12], 0.0)
    assert not np.isfinite(episode.proposed[9:12, 1]).any()
    assert events(rows) == [("intervention", "non-finite-action"), ("recovered", "non-finite-action")]
    assert rows[0]["proposed"] == [0.5, str(float(value))] and rows[0]["tick"] == 9
    assert episode.valid.all()  # a neutral action is an action


def test_a_policy_that_stays_broken_ends_the_episode():
    backend = car()
    episode, rows = drive(backend, constant(np.nan, np.nan), steps=100)
    assert episode.end == "action-fault" and episode.length == pytest.approx(31, abs=1)  # a second
    assert not any(throttle for _, _, throttle in backend.sent)
    assert events(rows) == [("intervention", "non-finite-action"), ("abort", "action-fault")]


def test_wrong_shapes_and_bounds():
    backend = car()
    episode, _ = drive(backend, lambda obs: np.zeros(3), steps=3)
    assert reasons(episode) == ["non-finite-action"] * 3
    episode, rows = drive(backend, constant(3.0, -7.0), steps=3)
    np.testing.assert_array_equal(episode.action, [[1.0, -1.0]] * 3)
    assert reasons(episode) == ["out-of-bounds"] * 3 and rows[0]["proposed"] == [3.0, -7.0]


def test_a_short_loss_of_frames_is_ridden_out():
    """Two ticks without a frame: the last one is used, nothing is learned from them."""
    backend = car()
    backend.blackout(10.5 * PERIOD, 12.5 * PERIOD)
    policy = constant(0.1, 0.2)
    episode, rows = drive(backend, policy, steps=20)
    lost = np.flatnonzero(~episode.seen)
    assert len(lost) == 2 and episode.end == "completed"
    assert [reasons(episode)[k] for k in lost] == ["invalid-frame"] * 2
    np.testing.assert_allclose(episode.action, [[0.1, 0.2]] * 20, atol=1e-7)  # no reason to stop yet
    np.testing.assert_array_equal(episode.pose[lost[0]], episode.pose[lost[0] - 1])
    expected = np.ones(20, bool)
    expected[lost[0] - 1 : lost[-1] + 1] = False  # every transition that touches them
    np.testing.assert_array_equal(episode.valid, expected)
    assert events(rows) == [("intervention", "invalid-frame"), ("recovered", "invalid-frame")]


def test_a_longer_loss_zeroes_the_throttle_after_100_ms_and_recovers():
    backend = car()
    backend.blackout(10.5 * PERIOD, 20.5 * PERIOD)
    episode, rows = drive(backend, constant(0.0, 0.5), steps=40)
    lost = np.flatnonzero(~episode.seen)
    stale = [k for k, reason in enumerate(reasons(episode)) if reason == "stale-observation"]
    assert len(lost) == 10 and episode.end == "completed"
    # The last frame is k periods old at the k-th tick without one: more than 100 ms from the fourth on.
    assert stale == lost[3:].tolist() or stale == lost[2:].tolist()  # 3 periods are 100 ms up to the last bit
    np.testing.assert_array_equal(episode.action[stale, 1], 0.0)
    np.testing.assert_array_equal(np.delete(episode.action[:, 1], stale), 0.5)
    assert ("intervention", "stale-observation") in events(rows) and ("recovered", "stale-observation") in events(rows)
    recovered = next(row for row in rows if row["event"] == "recovered" and row["reason"] == "stale-observation")
    assert recovered["lasted"] == pytest.approx(len(stale) * PERIOD)


def test_a_loss_beyond_the_limit_ends_the_episode_and_keeps_what_was_seen():
    backend = car()
    backend.blackout(10.5 * PERIOD, 1e9)
    episode, rows = drive(backend, constant(0.0, 0.3), steps=200)
    assert episode.end == "observation-lost" and events(rows)[-1] == ("abort", "observation-lost")
    assert rows[-1]["age"] == pytest.approx(1.0, abs=2 * PERIOD)
    assert episode.valid.sum() == np.flatnonzero(~episode.seen)[0] - 1 > 5


@dataclasses.dataclass
class Bent(SimBackend):
    """A car whose frame 10 is something else."""

    bend: object

    def __post_init__(self):
        super().__init__(SimConfig(clock="simulated"))
        self.reset("teleport")

    def observe(self):
        seen = super().observe()
        return self.bend(seen) if seen.frame_id == 10 else seen


@pytest.mark.parametrize(
    "bend",
    [
        lambda o: dataclasses.replace(o, pose=o.pose + np.array([0.8, 0.0, 0.0])),  # another marker
        lambda o: dataclasses.replace(o, twist=np.array([0.0, 0.0, 180.0])),  # a heading that wrapped
        lambda o: dataclasses.replace(o, pose=np.array([np.nan, 0.0, 0.0])),
    ],
    ids=["jump", "yaw rate", "nan"],
)
def test_impossible_frames_are_ignored(bend):
    episode, _ = drive(Bent(bend), constant(0.0, 0.1), steps=20)
    lost = np.flatnonzero(~episode.seen)
    assert len(lost) == 1 and episode.end == "completed" and np.isfinite(episode.obs).all()
    assert episode.valid.sum() == 18


def test_late_commands_are_refused_replaced_by_neutral_and_not_learned_from():
    """A policy that thinks for 50 ms once. Its action is for a period that is over."""
    backend, calls = car(), []

    def policy(obs):
        calls.append(1)
        if len(calls) == 8:
            backend.clock.sleep_until(backend.clock.now() + 0.05)
        return np.array([0.0, 0.5])

    episode, rows = drive(backend, policy, steps=16)
    assert reasons(episode)[7] == "late-command" and episode.timing()["overruns"] == 1
    assert rows[0]["reason"] == "late-command" and rows[0]["late_by"] > PERIOD
    np.testing.assert_array_equal(episode.action[7], 0.0)
    assert backend.health().refused_commands == 1
    assert not episode.valid[7:11].any()  # the stack is uncertain for three more ticks
    assert episode.valid[:7].all() and episode.valid[11:].all() and episode.end == "completed"
    np.testing.assert_array_equal(np.diff(episode.slot), [1] * 7 + [2] + [1] * 8)  # one left out, none caught up with


def test_a_policy_that_hangs_is_noticed_by_another_thread():
    """The thread runs in real time; the clock that it reads is moved by the policy, not by a busy machine."""
    backend, calls = car(), []
    backend.clock = Stepped()
    backend.reset("teleport")

    def policy(obs):
        calls.append(backend.clock.now())
        if len(calls) == 6:
            before = len(backend.sent)
            backend.clock.sleep_until(calls[5] + 0.11)
            deadline = time.monotonic() + 10
            while len(backend.sent) == before and time.monotonic() < deadline:
                time.sleep(0.001)
            assert {sent[1:] for sent in backend.sent[before:]} == {(0.0, 0.0)}  # neutral while the policy still thinks
            backend.clock.sleep_until(calls[5] + 0.4)
        return np.array([0.0, 0.5])

    episode, rows = drive(backend, policy, steps=10)
    row = next(row for row in rows if row["reason"] == "stale-command")
    assert 0.1 < row["age"] < 0.15  # since the command of the tick before
    assert episode.end == "completed" and not episode.valid[5]


def test_the_car_is_stopped_when_the_policy_raises():
    backend = car()

    def policy(obs):
        raise ValueError("no")

    with pytest.raises(RunFault, match="the policy failed with ValueError"):
        drive(backend, policy)
    assert backend.sent[-1][1:] == (0.0, 0.0)


def test_the_car_is_stopped_when_the_log_cannot_be_written(monkeypatch):
    backend, log = car(), EventLog()

    def full(event, **details):
        raise RunFault("cannot write interventions.jsonl: No space left on device.")

    monkeypatch.setattr(log, "add", full)
    with pytest.raises(RunFault, match="No space left"):
        drive(backend, constant(0.0, np.nan), log=log)
    assert backend.sent[-1][1:] == (0.0, 0.0) and not any(throttle for _, _, throttle in backend.sent)


def test_the_operator_stops_within_one_period():
    backend, asked = car(), []
    stop = {"now": False}

    def policy(obs):
        if len(backend.sent) == 12:
            stop["now"] = True
            asked.append(backend.clock.now())
        return np.array([0.0, 1.0])

    episode, rows = drive(backend, policy, steps=50, stop_requested=lambda: stop["now"])
    assert episode.end == "operator" and events(rows) == [("abort", "operator")]
    pushing = [at for at, _, throttle in backend.sent if throttle > 0]
    stopped = [at for at, _, throttle in backend.sent if throttle == 0]
    assert max(pushing) <= asked[0] < min(stopped) <= asked[0] + PERIOD + 1e-9
    assert episode.valid.all() and episode.length == 13


def test_a_refusal_for_any_reason_counts_as_late():
    """An accepted=False that has no fault of ours behind it (a vendor's link) is treated as a late command too."""
    backend = car()
    supervisor = Supervisor(backend)
    supervisor.begin(0, backend.observe(), 0.0)
    backend.command = lambda steer, throttle, stamp: Ack(False, 0.0)
    sent = supervisor.act(np.array([0.1, 0.9]), 0.0)
    assert sent.reason == "late-command" and not sent.certain and not sent.action.any()


def test_the_log_is_strict_json_and_survives_half_a_line(tmp_path):
    path = tmp_path / "interventions.jsonl"
    log = EventLog(path)
    log.add("intervention", reason="non-finite-action", proposed=np.array([math.nan, 1.0]))
    log.close()
    with open(path, "ab") as file:
        file.write(b'{"event": "half')
    assert len(EventLog.read(path)) == 1
    log = EventLog(path)
    log.add("abort", reason="geofence", x=np.float64(3.0))
    log.close()
    rows = [json.loads(line, parse_constant=lambda word: pytest.fail(word)) for line in path.read_text().splitlines()]
    assert [row["event"] for row in rows] == ["intervention", "abort"] and rows[0]["proposed"] == ["nan", 1.0]
    assert all(row["time"].endswith("+00:00") for row in rows)


@pytest.mark.parametrize(
    "options",
    [{"field_x": (1.0, 1.0)}, {"speed_cap": 0.0}, {"throttle_scale": 1.5}, {"stale_after": math.nan}],
)
def test_impossible_limits_are_refused(options):
    with pytest.raises(SombrlError, match="--supervisor"):
        SupervisorConfig(**options)


def test_every_limit_does_something():
    """Turned to where it bites, each field changes what happens."""

    def outcome(**options):
        backend = car()
        backend.blackout(30.5 * PERIOD, 45.5 * PERIOD)
        config = SupervisorConfig(**({"field_x": (-50.0, 50.0), "field_y": (-50.0, 50.0)} | options))
        episode, rows = drive(backend, White(size=1.0), steps=60, config=config)
        return episode.end, episode.action.tobytes(), episode.pose.tobytes(), len(rows)

    usual = outcome()
    changes = {
        "field_x": (1.3, 1.5),
        "field_y": (-1.1, -0.9),
        "speed_cap": 0.05,
        "throttle_scale": 0.2,
        "stale_after": 0.3,
        "fault_limit": 0.2,
        "most_jump": 1e-4,
        "most_yaw_rate": 0.05,
    }
    assert set(changes) == {field.name for field in dataclasses.fields(SupervisorConfig)}
    for name, value in changes.items():
        assert outcome(**{name: value}) != usual, name
    assert outcome() == usual
