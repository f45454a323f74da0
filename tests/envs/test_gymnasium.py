"""The Gymnasium adapter: scaling, cost, clocks, replay, known tasks, and everything it refuses."""

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, MultiBinary, MultiDiscrete, Tuple

from sombrl.envs.action_cost import ActionCost
from sombrl.envs.adapters.gymnasium import GymnasiumEnvs
from sombrl.envs.mountain_car import MountainCarTask
from sombrl.envs.pendulum import PendulumTask
from sombrl.records import RunFault, SombrlError

from .tiny import Gallery, Tiny

ON = np.ones(1, bool)


def one(source=Tiny, **options):
    envs = GymnasiumEnvs(source, [3], **{"episode_length": 20, **options})
    envs.reset(0)
    return envs


def test_actions_are_scaled_to_the_bounds():
    envs = one()
    for action in ([-1, -1], [1, 1], [0, 0.5], [-9, 9]):
        envs.step(np.array([action], np.float32), ON)
    taken = np.array(envs.envs[0].taken)
    np.testing.assert_array_equal(taken, [[-1, 0], [3, 4], [1, 3], [-1, 4]])
    assert taken.dtype == np.float32


def test_repeats_sum_and_cost_is_the_unscaled_norm_per_frame():
    envs = one(action_repeat=3, action_cost=0.5)
    step = envs.step(np.array([[1.0, 1.0]]), ON)  # u = (3, 4): reward 7, ‖u‖₂ = 5
    assert step.reward[0] == pytest.approx(3 * (7 - 0.5 * 5))
    assert len(envs.envs[0].taken) == 3


def test_the_end_stops_the_repeat():
    envs = one(lambda: Tiny(goal=4.5, noise=0.0), action_repeat=5, action_cost=0.1)
    start = envs.get_state()["obs"][0, 0]
    step = envs.step(np.array([[1.0, 0.0]]), ON)  # +3 a frame
    frames = int(np.ceil((4.5 - start) / 3))
    assert step.terminated[0] and not step.truncated[0] and 1 <= frames < 5
    assert step.reward[0] == pytest.approx(frames * (5 - 0.1 * np.hypot(3, 2)))


def test_terminated_on_the_last_frame_is_not_truncated():
    envs = one(lambda: Tiny(goal=-1e9), episode_length=1)
    step = envs.step(np.zeros((1, 2)), ON)
    assert step.terminated[0] and not step.truncated[0]


def test_time_limits():
    assert one("sombrl-tests/Tiny-v0", episode_length=None).spec.episode_length == 7
    assert one("sombrl-tests/Tiny-v0", episode_length=50).spec.episode_length == 7  # its own limit wins
    assert one("sombrl-tests/Tiny-v0", episode_length=4).spec.episode_length == 4
    repeated = one("sombrl-tests/Tiny-v0", episode_length=None, action_repeat=3)
    assert repeated.spec.episode_length == 3
    steps = [repeated.step(np.zeros((1, 2)), ON) for _ in range(3)]
    assert [s.truncated[0] for s in steps] == [False, False, True]
    assert len(repeated.envs[0].unwrapped.taken) == 7
    limited = one(lambda: gymnasium.wrappers.TimeLimit(Tiny(), 5), episode_length=None)
    assert limited.spec.episode_length == 5
    with pytest.raises(SombrlError, match="no time limit of its own; give episode_length"):
        one("sombrl-tests/Endless-v0", episode_length=None)


def test_starts_are_seeded_by_seed_and_episode():
    envs = GymnasiumEnvs("Pendulum-v1", [3, 4])
    expected = gymnasium.make("Pendulum-v1")
    seed = int(np.random.SeedSequence([4, 6]).generate_state(1)[0]) >> 1
    np.testing.assert_array_equal(envs.reset(6)[1], expected.reset(seed=seed)[0])


def test_replay_refuses_an_environment_that_does_not_repeat_itself():
    envs = one(lambda: Tiny(fault="random steps"))
    envs.step(np.zeros((1, 2)), ON)
    with pytest.raises(SombrlError, match="did not replay"):
        envs.set_state(envs.get_state())


def test_known_tasks():
    pendulum, car = one("Pendulum-v1"), one("MountainCarContinuous-v0")
    assert isinstance(pendulum.task, PendulumTask) and isinstance(car.task, MountainCarTask)
    assert car.task.world.terminates
    for envs in (pendulum, car):
        rng = np.random.default_rng(0)
        obs = envs.reset(0)[0]
        for _ in range(10):
            action = rng.uniform(-1, 1, (1, 1)).astype(np.float32)
            step = envs.step(action, ON)
            known = envs.task.reward(jnp.asarray(obs), jnp.asarray(action[0]), jnp.asarray(step.obs[0]))
            assert float(known) == pytest.approx(step.reward[0], rel=1e-4, abs=1e-5)
            obs = step.obs[0]


def test_the_known_task_charges_the_cost_too():
    envs = one("Pendulum-v1", action_cost=0.3)
    assert isinstance(envs.task, ActionCost)
    action = np.array([[0.8]], np.float32)
    obs = envs.reset(0)[0]
    step = envs.step(action, ON)
    known = envs.task.reward(jnp.asarray(obs), jnp.asarray(action[0]), jnp.asarray(step.obs[0]))
    assert float(known) == pytest.approx(step.reward[0], rel=1e-5)


def test_a_task_is_known_only_if_nothing_changed_it():
    assert one("sombrl-tests/Tiny-v0").task is None
    assert one("MountainCarContinuous-v0", env_kwargs={"goal_velocity": 0.01}).task is None
    assert one("Pendulum-v1", env_kwargs={"g": 9.81}).task is not None  # gravity is not in the reward
    assert one(gymnasium.make("Pendulum-v1")).task is not None
    assert one(gymnasium.wrappers.TransformReward(gymnasium.make("Pendulum-v1"), abs)).task is None


@pytest.mark.parametrize(
    "options, told",
    [
        ({"action_space": MultiDiscrete([3, 2])}, "MultiDiscrete.*number the combinations"),
        ({"action_space": MultiBinary(3)}, "MultiBinary"),
        ({"action_space": Box(-np.inf, 1.0, (2,))}, "infinite bounds"),
        ({"action_space": Box(0, 9, (2,), np.int64)}, "Box of floats"),
        ({"obs_space": MultiDiscrete([3])}, "flat Dict"),
        ({"obs_space": Dict(a=Box(0, 1, (0,)))}, "empty"),
        ({"obs_space": Dict(a=Dict(b=Box(0, 1, (2,))))}, "observation 'a' is Dict.*flat Dict"),
        ({"obs_space": Tuple([Box(0, 1, (2,))])}, "FlattenObservation"),
        ({"obs_space": Box(0, 255, (3, 64, 64), np.uint8)}, "images.*move the axis"),
        ({"obs_space": Box(0, 1, (8, 8, 3), np.float32)}, "images"),
        ({"obs_space": Box(0, 255, (64,), np.uint8)}, "images"),
    ],
)
def test_spaces_we_cannot_drive(options, told):
    with pytest.raises(SombrlError, match=told) as error:
        one(env_kwargs=options)
    assert str(error.value).startswith("Tiny: the ") and "\n" not in str(error.value)


def test_the_largest_of_a_discrete_action_is_taken():
    envs = one("CartPole-v1")
    assert (envs.spec.action_dim, envs.spec.discrete, envs.spec.layout) == (2, True, None)
    theirs = gymnasium.make("CartPole-v1")
    theirs.reset(seed=int(np.random.SeedSequence([3, 0]).generate_state(1)[0]) >> 1)
    for action, index in [([0, 1], 1), ([1, 0], 0), ([-5, -7], 0), ([30, 70], 1), ([0.2, 0.1], 0)]:
        step = envs.step(np.array([action], np.float32), ON)  # beyond [-1, 1] the larger still wins
        obs, reward, *_ = theirs.step(index)
        np.testing.assert_array_equal(step.obs[0], obs)
        assert step.reward[0] == reward
    with pytest.raises(SombrlError, match=r"discrete actions.*action_cost 0"):
        one("CartPole-v1", action_cost=0.1)


def test_a_dict_of_everything():
    envs, theirs = one(Gallery, action_repeat=2), Gallery()
    spec = envs.spec
    assert [(p.name, p.shape, p.kind, p.size) for p in spec.layout.parts] == [
        ("frame", (2, 3, 3), "image", None),
        ("place", (), "discrete", 3),
        ("walk", (2,), "vector", None),
    ]
    assert spec.obs_dim == 18 + 4 + 2 * 4 and spec.obs_dtype == np.uint8 and spec.action_dim == 3
    theirs.reset(seed=int(np.random.SeedSequence([3, 0]).generate_state(1)[0]) >> 1)
    for chosen in (2, 0, 2, 2, 1):
        step = envs.step(np.eye(3, dtype=np.float32)[None, chosen], ON)
        rewards = [theirs.step(5 + chosen)[1] for _ in range(2)]
        seen, expected = spec.layout.split(step.obs[0]), theirs.see()
        np.testing.assert_array_equal(seen["frame"], expected["frame"])
        np.testing.assert_array_equal(seen["walk"], expected["walk"].astype(np.float32))
        assert seen["place"] == expected["place"] + 1 and step.reward[0] == sum(rewards)
    assert envs.envs[0].taken == theirs.taken
    np.testing.assert_array_equal(envs.physical(np.eye(3)), [5, 6, 7])


@pytest.mark.parametrize(
    "fault, kind, told",
    [
        ("nan", RunFault, r"Gallery \(seed 3, episode 0, step 0\): observation 'walk'\[1\] is nan"),
        ("float image", SombrlError, "image of float64, but its space says uint8"),
        ("no place", SombrlError, "without 'place'"),
        ("off the line", SombrlError, r"observation 2, but its space says Discrete\(3, start=-1\)"),
    ],
)
def test_broken_parts_are_named(fault, kind, told):
    with pytest.raises(kind, match=told):
        one(lambda: Gallery(fault)).step(np.zeros((1, 3)), ON)


def test_vectors_in_a_dict_stay_floats():
    """So every algorithm can use them."""

    class Twin(Gallery):
        observation_space = Dict(walk=Gallery.observation_space["walk"], at=Box(-9, 9, (), np.float32))

        def see(self):
            return {"walk": self.state, "at": self.state[0]}

    envs = one(Twin)
    x, y = envs.envs[0].state.astype(np.float32)
    np.testing.assert_array_equal(envs.get_state()["obs"][0], np.array([x, x, y], np.float32))
    assert envs.get_state()["obs"].dtype == np.float32 and envs.spec.layout.parts[0].shape == (1,)


def test_a_grey_picture_alone_and_a_number_alone():
    class Grey(Gallery):
        observation_space = Box(0, 255, (2, 3), np.uint8)

        def see(self):
            return super().see()["frame"][..., 0]

    envs = one(Grey)
    assert [(p.name, p.shape, p.kind) for p in envs.spec.layout.parts] == [("image", (2, 3, 1), "image")]
    np.testing.assert_array_equal(envs.get_state()["obs"][0], envs.envs[0].see().reshape(-1))
    lake = one("FrozenLake-v1", env_kwargs={"is_slippery": False})
    down = np.eye(4, dtype=np.float32)[None, 1]
    squares = [int(lake.spec.layout.split(lake.step(down, ON).obs[0])["obs"]) for _ in range(3)]
    assert squares == [4, 8, 12] and lake.spec.layout.parts[0].size == 16


def test_observations_are_flattened_to_float32():
    envs = one()
    assert envs.spec.obs_dim == 4 and envs.reset(0).dtype == np.float32
    np.testing.assert_array_equal(envs.reset(0)[0], envs.envs[0].state.astype(np.float32).reshape(-1))


@pytest.mark.parametrize(
    "fault, told",
    [
        ("nan observation", r"Tiny \(seed 3, episode 0, step 2\): observation\[1\] is nan"),
        ("inf reward", r"Tiny \(seed 3, episode 0, step 2\): reward is inf"),
        ("raises", r"Tiny \(seed 3, episode 0, step 2\): step failed with ValueError: the arm$"),
    ],
)
def test_a_broken_simulator_names_the_place(fault, told):
    envs = one(lambda: Tiny(fault=fault))
    with pytest.raises(RunFault, match=told):
        for _ in range(3):
            envs.step(np.zeros((1, 2)), ON)


@pytest.mark.parametrize(
    "fault, told",
    [
        ("wrong shape", r"shape \(3,\)"),
        ("no reward", "single number"),
        ("old step", "step must return"),
        ("old reset", "reset must return"),
    ],
)
def test_environments_that_break_gymnasiums_rules(fault, told):
    with pytest.raises(SombrlError, match=told):
        envs = one(lambda: Tiny(fault=fault))
        for _ in range(3):
            envs.step(np.zeros((1, 2)), ON)


def old_gym():
    return type("Old", (type("Env", (), {"__module__": "gym.core"}),), {})()


SHARED = Tiny()


@pytest.mark.parametrize(
    "source, told",
    [
        (old_gym(), "old gym package.*shimmy"),
        (old_gym, "old gym package.*shimmy"),
        (gymnasium.make_vec("Pendulum-v1", num_envs=2), "vector environment"),
        (Tiny(), "cannot serve 2 seeds; pass a function"),
        (lambda: SHARED, "same environment twice"),
        (lambda: 3, "must return a gymnasium.Env, not int"),
        (lambda: 1 / 0, "ZeroDivisionError"),
        (3, "An environment is"),
        ("Pendulm-v1", "Pendulum-v1"),
        ("no_such_module:Foo-v0", "module no_such_module"),
        ("sombrl.records:Foo-v0", 'unknown environment "Foo-v0"'),
        ("sombrl-tests/Broken-v0", "Broken-v0 could not be made: .*no_such_package"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,  # an address would differ per process
)
def test_sources_we_refuse(source, told):
    with pytest.raises(SombrlError, match=told) as error:
        GymnasiumEnvs(source, [0, 1], episode_length=5)
    assert "\n" not in str(error.value)


def test_more_refusals():
    with pytest.raises(SombrlError, match="ready environment"):
        GymnasiumEnvs(Tiny(), [0], env_kwargs={"goal": 3}, episode_length=5)
    with pytest.raises(SombrlError, match=r"could not be made.*wings"):
        GymnasiumEnvs("Pendulum-v1", [0], env_kwargs={"wings": 3})
    sizes = iter((2, 3))
    with pytest.raises(SombrlError, match="different spaces"):
        GymnasiumEnvs(lambda: Tiny(action_space=Box(-1, 1, (next(sizes),))), [0, 1], episode_length=5)


def test_a_module_of_the_users_registers_its_ids():
    name = f"{Tiny.__module__}:sombrl-tests/Tiny-v0"
    assert GymnasiumEnvs(name, [0]).spec.name == "sombrl-tests/Tiny-v0"


def test_render():
    for source in ("sombrl-tests/Tiny-v0", Tiny):
        assert one(source, render=True).render(0).shape == (4, 6, 3)
    with pytest.raises(SombrlError, match="pass render=True"):
        one().render(0)
    plain = one(lambda: Tiny(), render=True)  # a function that takes no render_mode
    with pytest.raises(SombrlError, match="rgb_array"):
        plain.render(0)
    plain.close()


def test_mujoco_ends_and_draws_without_a_screen(monkeypatch):
    pytest.importorskip("mujoco", reason="mujoco is not installed: pip install 'sombrl[dmc]'")
    for name in ("DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    envs = GymnasiumEnvs("InvertedPendulum-v5", [0], render=True)
    envs.reset(0)
    total, step = 0.0, None
    while step is None or not step.terminated[0]:  # pushed one way, the pole falls
        step = envs.step(np.ones((1, 1)), ON)
        total += step.reward[0]
    assert 2 <= envs._rows.decisions[0] < 50
    assert total == envs._rows.decisions[0] - 1  # 1 for every frame but the one in which it fell
    try:
        assert envs.render(0).std() > 0
    except SombrlError as error:
        pytest.skip(str(error))
    finally:
        envs.close()


def test_mujoco_is_replayed_to_the_same_bits():
    pytest.importorskip("mujoco", reason="mujoco is not installed: pip install 'sombrl[dmc]'")
    # The humanoid's reward reads quantities that lag behind MuJoCo's own saved state: a replay has them.
    envs, fresh = (GymnasiumEnvs("Humanoid-v5", [0, 1], action_repeat=2) for _ in range(2))
    rng, both = np.random.default_rng(0), np.ones(2, bool)
    envs.reset(0)
    for _ in range(4):
        envs.step(rng.uniform(-1, 1, (2, 17)), both)
    envs.reset_rows(np.array([True, False]), np.array([1, 0]))
    envs.step(rng.uniform(-1, 1, (2, 17)), both)
    fresh.set_state(envs.get_state())
    for _ in range(4):
        action = rng.uniform(-1, 1, (2, 17))
        one, two = envs.step(action, both), fresh.step(action, both)
        assert one.obs.tobytes() == two.obs.tobytes() and one.reward.tobytes() == two.reward.tobytes()


def test_an_environment_that_resets_itself_is_never_asked_to():
    """Gymnasium's Autoreset starts the next episode on the step after an end: such a step is never made."""
    plain, self_resetting = one(lambda: Tiny(goal=4.0)), one(lambda: gymnasium.wrappers.Autoreset(Tiny(goal=4.0)))
    rng, episode, ends = np.random.default_rng(0), 0, 0
    for _ in range(30):
        action = rng.uniform(-1, 1, (1, 2))
        left, right = (envs.step(action, ON) for envs in (plain, self_resetting))
        assert np.array_equal(left.obs, right.obs) and left.terminated[0] == right.terminated[0]
        if left.terminated[0] or left.truncated[0]:
            episode, ends = episode + 1, ends + int(left.terminated[0])
            starts = [envs.reset_rows(ON, np.array([episode])) for envs in (plain, self_resetting)]
            assert np.array_equal(*starts)
    assert ends > 2
