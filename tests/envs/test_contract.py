"""What the loop may rely on, for every kind of environment: add a row to `CASES`."""

import importlib.util

import numpy as np
import pytest

from sombrl.envs.registry import make_envs
from sombrl.records import RunFault, SombrlError

from .tiny import Gallery, Tiny

CASES = {
    "pendulum": {"name": "pendulum", "env_kwargs": {"start": "random"}},
    "pendulum, repeated": {"name": "pendulum", "env_kwargs": {"reward": "sparse"}, "action_repeat": 4},
    "mountain-car": {"name": "mountain-car", "action_cost": 0.1},
    "deceptive-chain": {"name": "deceptive-chain", "action_repeat": 4},
    "wall": {"name": "wall"},
    "rc-car": {"name": "rc-car"},
    "pixel:mountain-car": {"name": "pixel:mountain-car"},
    "pixel:key-door": {"name": "pixel:key-door", "action_repeat": 2, "action_cost": 0.1},
    "mountain-car, gym": {"name": "mountain-car", "env_kwargs": {"terminates": True}},
    "Pendulum-v1": {"name": "Pendulum-v1", "action_cost": 0.1},
    "MountainCarContinuous-v0": {"name": "MountainCarContinuous-v0", "action_repeat": 2},
    "an id of the user's": {"name": "sombrl-tests/Tiny-v0"},
    "a function": {"name": Tiny, "episode_length": 9, "action_repeat": 3},
    "a function, in processes": {"name": Tiny, "episode_length": 9, "action_repeat": 3, "workers": 2},
    "images and choices": {"name": Gallery, "episode_length": 9, "action_repeat": 2},
    "images and choices, in processes": {"name": Gallery, "episode_length": 9, "workers": 2},
    "CartPole-v1": {"name": "CartPole-v1"},
    "atari": {"name": "atari:DemonAttack", "needs": "ale_py", "env_kwargs": {"noops": 500, "sticky": 0.25}},
    "Swimmer-v5": {"name": "Swimmer-v5", "needs": "mujoco"},
    "Reacher-v5": {"name": "Reacher-v5", "needs": "mujoco", "action_repeat": 2},
    "Hopper-v5": {"name": "Hopper-v5", "needs": "mujoco", "action_cost": 0.1},
    "playground": {"name": "playground:CartpoleSwingupSparse", "needs": "mujoco_playground"},
    "playground, target": {"name": "playground:FingerTurnHard", "needs": "mujoco_playground", "action_cost": 0.1},
    "dmc": {"name": "dmc:cartpole-swingup", "needs": "dm_control", "action_cost": 0.1},
    "dmc, repeated": {"name": "dmc:reacher-hard", "needs": "dm_control", "action_repeat": 3},
    "dmc, in processes": {"name": "dmc:finger-turn_hard", "needs": "dm_control", "action_repeat": 2, "workers": 2},
}
SEEDS = [0, 1, 2, 3, 4]
IDLE: dict[str, list] = {}  # processes are started once and used by many tests, each from the blank state


LONG = ("dmc, in processes",)  # every worker imports dm_control, for seconds
EXTRA = {"ale_py": "atari", "mujoco_playground": "playground"}  # else dmc


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.thorough] * (name in LONG)) for name in CASES])
def make(request):
    case = dict(CASES[request.param])
    name, needs = case.pop("name"), case.pop("needs", None)
    if needs and importlib.util.find_spec(needs) is None:
        extra = EXTRA.get(needs, "dmc")
        pytest.skip(f"{needs} is not installed: pip install 'sombrl[{extra}]'")
    lent = []

    def build(seeds=SEEDS, **options):
        if not case.get("workers") or len(seeds) < len(SEEDS):  # fewer rows, without processes: the same bits
            return make_envs(name, seeds, **{**case, **options, "workers": 0})
        key = repr((name, list(seeds), options))
        if not IDLE.get(key):
            envs = make_envs(name, seeds, **{**case, **options})
            IDLE[key] = [(envs, envs.get_state())]
        envs, blank = IDLE[key].pop()
        envs.set_state(blank)
        lent.append((key, (envs, blank)))
        return envs

    yield build
    for key, pair in lent:
        IDLE[key].append(pair)


@pytest.fixture(autouse=True, scope="module")
def end_processes():
    yield
    for pairs in IDLE.values():
        for envs, _ in pairs:
            envs.close()
    IDLE.clear()


def play(envs, steps, rng, active=None):
    active = np.ones(len(envs.seeds), bool) if active is None else active
    out = []
    for _ in range(steps):
        actions = rng.uniform(-1, 1, (len(SEEDS), envs.spec.action_dim)).astype(np.float32)
        out.append(envs.step(actions[envs.seeds], active))  # seed s plays row s of the same five rows
    return out


def equal(left, right, row=slice(None), other=slice(None)):
    fields = ("obs", "reward", "terminated", "truncated")
    return all(
        np.array_equal(getattr(a, f)[row], getattr(b, f)[other])
        for a, b in zip(left, right, strict=True)
        for f in fields
    )


def test_shapes_types_and_numbers(make):
    envs = make()
    spec = envs.spec
    obs = envs.reset(0)
    assert obs.shape == (5, spec.obs_dim) and obs.dtype == spec.obs_dtype
    for step in play(envs, 5, np.random.default_rng(0)):
        assert step.obs.shape == (5, spec.obs_dim) and step.obs.dtype == spec.obs_dtype
        assert step.reward.shape == (5,) and step.reward.dtype == np.float64
        assert step.terminated.shape == step.truncated.shape == (5,)
        assert step.terminated.dtype == step.truncated.dtype == bool
        assert np.isfinite(step.obs).all() and np.isfinite(step.reward).all()
        assert not np.array_equal(step.obs, obs)
    assert not np.shares_memory(step.obs, envs.step(np.zeros((5, spec.action_dim)), np.ones(5, bool)).obs)


def test_the_clock_truncates_and_then_steps_are_refused(make):
    envs = make(episode_length=3)
    envs.reset(0)
    steps = play(envs, 3, np.random.default_rng(0))
    assert [step.truncated.all() for step in steps] == [False, False, True]
    assert not any(step.terminated.any() for step in steps)
    with pytest.raises(SombrlError, match="over"):
        play(envs, 1, np.random.default_rng(0))
    envs.reset(1)
    play(envs, 1, np.random.default_rng(0))


def test_inactive_rows_are_untouched(make):
    rng, active = np.random.default_rng(0), np.array([True, False, True, False, True])
    envs = make()
    start = envs.reset(0)
    resting = play(envs, 2, rng, active)
    for step in resting:
        assert np.array_equal(step.obs[~active], start[~active])
        assert not step.reward[~active].any()
        assert not step.terminated[~active].any() and not step.truncated[~active].any()
    # They go on as if nothing had happened, whatever the sleepers' actions were (NaN included).
    envs.reset(0)
    actions = np.random.default_rng(0).uniform(-1, 1, (5, envs.spec.action_dim)).astype(np.float32)
    actions[~active] = np.nan
    assert np.array_equal(envs.step(actions, active).obs, resting[0].obs)
    awake = make()
    awake.reset(0)
    one = awake.step(np.full((5, envs.spec.action_dim), 0.5), np.ones(5, bool))
    two = envs.step(np.full((5, envs.spec.action_dim), 0.5), ~active)
    assert np.array_equal(one.obs[~active], two.obs[~active])


def test_same_seed_same_trajectory_and_other_episodes_differ(make):
    envs = make()
    first = envs.reset(3)
    one = play(envs, 5, np.random.default_rng(0))
    other = envs.reset(4)
    again = envs.reset(3)
    assert np.array_equal(first, again)
    assert equal(one, play(envs, 5, np.random.default_rng(0)))
    if len(np.unique(first, axis=0)) > 1:  # not the pendulum that always hangs
        assert len(np.unique(np.concatenate([first, other]), axis=0)) == 10


def test_a_seed_does_not_depend_on_its_neighbours(make):
    together, alone = make(), make(seeds=[3])
    assert np.array_equal(together.reset(2)[3:4], alone.reset(2))
    many = play(together, 7, np.random.default_rng(1))
    assert equal(many, play(alone, 7, np.random.default_rng(1)), slice(3, 4))


def test_state_is_restored_exactly_mid_episode(make):
    envs, fresh = make(), make()
    envs.reset(5)
    rng = np.random.default_rng(0)
    play(envs, 2, rng, np.array([True, True, False, True, False]))
    saved = envs.get_state()
    assert all(isinstance(value, np.ndarray) for value in saved.values())
    after = play(envs, 3, np.random.default_rng(9))
    fresh.set_state(saved)
    assert equal(after, play(fresh, 3, np.random.default_rng(9)))
    envs.set_state(saved)  # also back in time, on the same object
    assert equal(after, play(envs, 3, np.random.default_rng(9)))


@pytest.mark.thorough
def test_the_clock_survives_a_restore(make):
    envs, fresh = make(episode_length=3), make(episode_length=3)
    envs.reset(0)
    play(envs, 2, np.random.default_rng(0))
    fresh.set_state(envs.get_state())
    assert play(fresh, 1, np.random.default_rng(1))[0].truncated.all()
    ended = fresh.get_state()
    envs.set_state(ended)
    with pytest.raises(SombrlError, match="over"):
        play(envs, 1, np.random.default_rng(1))


def test_a_state_before_the_first_reset(make):
    envs = make()
    blank = envs.get_state()
    envs.reset(0)
    envs.set_state(blank)
    with pytest.raises(SombrlError, match="call reset"):
        play(envs, 1, np.random.default_rng(0))


def test_bad_states_are_refused(make):
    envs, fewer = make(), make(seeds=[0, 1])
    envs.reset(0)
    with pytest.raises(SombrlError, match="does not fit"):
        fewer.set_state(envs.get_state())
    with pytest.raises(SombrlError, match="no 'obs'"):
        envs.set_state({k: v for k, v in envs.get_state().items() if k != "obs"})


def test_bad_steps_are_refused(make):
    envs = make()
    dim = envs.spec.action_dim
    with pytest.raises(SombrlError, match="call reset"):
        envs.step(np.zeros((5, dim)), np.ones(5, bool))
    envs.reset(0)
    with pytest.raises(SombrlError, match="shape"):
        envs.step(np.zeros((5, dim + 1)), np.ones(5, bool))
    with pytest.raises(SombrlError, match="5 booleans"):
        envs.step(np.zeros((5, dim)), np.ones(5))
    with pytest.raises(RunFault, match=r"seed 0, episode 0, step 0\): action\[0\] is nan"):
        envs.step(np.full((5, dim), np.nan), np.ones(5, bool))
    with pytest.raises(SombrlError, match="episode number"):
        envs.reset(-1)


def test_actions_are_clipped(make):
    envs = make()
    envs.reset(0)
    inside = envs.step(np.ones((5, envs.spec.action_dim)), np.ones(5, bool))
    envs.reset(0)
    assert equal([inside], [envs.step(np.full((5, envs.spec.action_dim), 7.0), np.ones(5, bool))])


def alone(make, seed, episode, actions):
    """The episode of one row by itself: [start, every step]."""
    envs = make(seeds=[seed])
    start = envs.reset(episode)[0]
    steps = [envs.step(action[None], np.ones(1, bool)) for action in actions]
    return start, steps


def test_one_row_starts_again_while_the_others_go_on(make):
    envs = make()
    rng, again = np.random.default_rng(3), np.array([False, True, False, True, False])
    actions = rng.uniform(-1, 1, (5, 5, envs.spec.action_dim)).astype(np.float32)
    before = envs.reset(0)
    steps = [envs.step(a, np.ones(5, bool)) for a in actions[:2]]
    now = envs.reset_rows(again, np.array([9, 4, 9, 7, 9]))
    assert now.dtype == envs.spec.obs_dtype and not np.shares_memory(now, steps[-1].obs)
    assert np.array_equal(now[~again], steps[-1].obs[~again])  # where they were
    steps += [envs.step(a, np.ones(5, bool)) for a in actions[2:]]
    for row, (episode, first) in enumerate([(0, 0), (4, 2), (0, 0), (7, 2), (0, 0)]):
        start, expected = alone(make, row, episode, actions[first:, row])
        assert np.array_equal(start, before[row] if first == 0 else now[row])
        assert equal(steps[first:], expected, slice(row, row + 1))


@pytest.mark.thorough
def test_no_transition_crosses_the_border_of_an_episode(make):
    """Rows end at different times; each is started again as soon as it is over, as a loop would."""
    envs, length = make(episode_length=3), 3
    rng = np.random.default_rng(5)
    obs, episodes, seen = envs.reset(0), np.zeros(5, int), {row: [[]] for row in range(5)}
    envs.reset_rows(np.array([False, False, True, False, True]), np.full(5, 0))
    for t in range(8):
        actions = rng.uniform(-1, 1, (5, envs.spec.action_dim)).astype(np.float32)
        active = np.array([True, t != 1, True, t > 0, True])
        step = envs.step(actions, active)
        for row in np.flatnonzero(active):
            seen[row][-1].append((obs[row], actions[row], step.obs[row], step.truncated[row]))
        over = step.terminated | step.truncated
        episodes[over] += 1
        obs = envs.reset_rows(over, episodes)
        for row in np.flatnonzero(over):
            seen[row].append([])
    for row, chapters in seen.items():
        for episode, chapter in enumerate(chapters[:-1]):
            assert [end for *_, end in chapter] == [False] * (length - 1) + [True]
            before, actions, after = (np.stack(part) for part in list(zip(*chapter, strict=True))[:3])
            start, expected = alone(lambda seeds: make(seeds=seeds, episode_length=3), row, episode, actions)
            assert np.array_equal(before[0], start) and np.array_equal(before[1:], after[:-1])
            assert np.array_equal(after, np.concatenate([s.obs for s in expected]))


def test_state_is_exact_with_rows_in_different_episodes(make):
    envs, fresh = make(episode_length=6), make(episode_length=6)
    envs.reset(1)
    play(envs, 2, np.random.default_rng(0))
    envs.reset_rows(np.array([True, False, False, False, True]), np.array([6, 0, 0, 0, 3]))
    play(envs, 2, np.random.default_rng(1), np.array([True, True, False, True, True]))
    saved = envs.get_state()
    assert all(len(value) == 5 for value in saved.values())
    fresh.set_state(saved)
    after = play(envs, 2, np.random.default_rng(2))
    assert equal(after, play(fresh, 2, np.random.default_rng(2)))
    assert after[1].truncated.tolist() == [False, True, False, True, False]  # every row has its own clock
    only = np.array([False, True, False, True, False])
    assert np.array_equal(envs.reset_rows(only, np.full(5, 8)), fresh.reset_rows(only, np.full(5, 8)))


def test_rows_that_were_never_started(make):
    envs, first = make(), np.array([True, False, False, False, False])
    start = envs.reset_rows(first, np.zeros(5, int))
    assert not start[1:].any()
    assert np.isfinite(play(envs, 1, np.random.default_rng(0), first)[0].obs).all()
    with pytest.raises(SombrlError, match="not been started for seed 1; call reset"):
        play(envs, 1, np.random.default_rng(0))
    fresh = make()
    fresh.set_state(envs.get_state())
    assert np.array_equal(envs.reset_rows(~first, np.full(5, 2)), fresh.reset_rows(~first, np.full(5, 2)))
    assert equal(play(envs, 2, np.random.default_rng(1)), play(fresh, 2, np.random.default_rng(1)))


def test_bad_rows_are_refused(make):
    envs = make()
    with pytest.raises(SombrlError, match="rows must be 5 booleans"):
        envs.reset_rows(np.ones(5), np.zeros(5, int))
    with pytest.raises(SombrlError, match="episodes must be 5 integers"):
        envs.reset_rows(np.ones(5, bool), np.zeros(4, int))
    with pytest.raises(SombrlError, match="episode number"):
        envs.reset_rows(np.ones(5, bool), np.array([0, 0, -1, 0, 0]))
