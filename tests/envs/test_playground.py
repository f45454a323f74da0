"""MuJoCo Playground's tasks: what they compute, what they are called, and the sentences for wrong ones."""

import importlib.util
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from sombrl.algorithms.gp_icem import GPICEMConfig, build
from sombrl.envs.adapters import playground
from sombrl.envs.adapters.playground import PlaygroundWorld
from sombrl.envs.jax_envs import JaxEnvs
from sombrl.envs.registry import list_envs, make_envs
from sombrl.envs.trust import module_of
from sombrl.records import RunFault, SombrlError
from sombrl.settings import FiniteHorizon

NAME = "playground:CartpoleSwingupSparse"
ON = np.ones(1, bool)


@pytest.fixture
def suite():
    if importlib.util.find_spec("mujoco_playground") is None:  # importing it would load mujoco without pictures
        pytest.skip("needs sombrl[playground]")
    return playground._suite(NAME)


def test_without_the_package_it_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco_playground", None)
    playground._suite.cache_clear()
    with pytest.raises(SombrlError, match=r"which is not installed; pip install 'sombrl\[playground\]'") as error:
        make_envs(NAME, [0])
    playground._suite.cache_clear()
    assert str(error.value).startswith(f'"{NAME}" needs MuJoCo Playground') and "\n" not in str(error.value)
    rows = dict(list_envs())
    assert "pip install 'sombrl[playground]'" in rows["playground:<Task>"]


def test_a_file_may_name_one():
    assert module_of(NAME) is None


def test_every_task_is_one_of_ours(suite):
    assert playground.TASKS == suite.ALL_ENVS
    for name in playground.task_names():
        world = PlaygroundWorld(name)
        assert world.obs_dim >= 3 and world.action_dim >= 1
        assert world._env._config.episode_length == world.episode_frames == 1000
        assert world._env.mjx_model.impl.value == "jax"


@pytest.mark.parametrize(
    "name, kwargs, told",
    [
        ("playground:CartpoleSwingupSpars", {}, f'did you mean "{NAME}"'),
        ("playground:", {}, "unknown environment"),
        (NAME, {"impl": "warp"}, "has no option 'impl'; it has ctrl_dt and sim_dt"),
        (NAME, {"sim_dt": "fast"}, "sim_dt must be a finite number"),
        (NAME, {"sim_dt": 0}, "must be positive"),
        (NAME, {"sim_dt": 0.05}, "a frame, no less"),
    ],
)
def test_refusals(name, kwargs, told, suite):
    with pytest.raises(SombrlError, match=told) as error:
        make_envs(name, [0], env_kwargs=kwargs)
    assert "\n" not in str(error.value)


def test_no_workers_and_no_planning_on_the_truth(suite):
    with pytest.raises(SombrlError, match="Worlds in JAX are stepped by JAX"):
        make_envs(NAME, [0], workers=2)
    envs = make_envs(NAME, [0])
    assert isinstance(envs, JaxEnvs) and envs.task is None
    assert (envs.spec.action_repeat, envs.spec.episode_length) == (2, 500)
    with pytest.raises(SombrlError, match="--model true needs one of sombrl's own worlds"):
        build(GPICEMConfig(model="true"), envs, FiniteHorizon(500))


def test_a_decision_is_two_steps_of_the_suites(suite):
    envs = make_envs("playground:CartpoleSwingup", [3])
    envs.reset(5)
    with playground._their_rules():
        theirs = suite.load("CartpoleSwingup", config_overrides={"impl": "jax"})
        step, state = jax.jit(theirs.step), envs._states[0]
        for action in np.random.default_rng(0).uniform(-1, 1, (5, 1)).astype(np.float32):
            total = 0.0
            for _ in range(2):
                state = step(state, action)
                total += float(state.reward)
            taken = envs.step(action[None], ON)
            np.testing.assert_allclose(taken.obs[0], state.obs, atol=1e-5)
            assert taken.reward[0] == pytest.approx(total, abs=1e-5) and total > 0


def test_the_physics_are_mujocos(suite):
    """MJX against MuJoCo in C, from the same start, by the same forces."""
    import mujoco

    envs = make_envs(NAME, [0], action_repeat=1)
    envs.reset(0)
    model, start = envs.world._env.mj_model, envs._states[0].data
    data = mujoco.MjData(model)
    data.qpos, data.qvel = np.asarray(start.qpos), np.asarray(start.qvel)
    for action in np.random.default_rng(1).uniform(-1, 1, (50, 1)).astype(np.float32):
        envs.step(action[None], ON)
        data.ctrl = action
        for _ in range(envs.world._env.n_substeps):
            mujoco.mj_step(model, data)
    ours = envs._states[0].data
    np.testing.assert_allclose(np.asarray(ours.qpos), data.qpos, atol=1e-3)
    np.testing.assert_allclose(np.asarray(ours.qvel), data.qvel, atol=1e-2)
    assert np.abs(data.qpos[0] - start.qpos[0]) > 0.01  # it moved


def test_options_are_seconds(suite):
    slow = make_envs(NAME, [0], env_kwargs={"ctrl_dt": "0.02"})
    assert slow.world._env.dt == 0.02 and slow.world._env.n_substeps == 2
    assert slow.world != make_envs(NAME, [0]).world == PlaygroundWorld(NAME)


def test_a_step_leaves_the_old_state_alone(suite):
    envs = make_envs(NAME, [0])
    envs.reset(0)
    world, state = envs.world, envs._states[0]
    before = [np.array(leaf) for leaf in jax.tree.leaves(state)]
    jax.eval_shape(lambda action: world.step(state, action, key=jr.key(1)), jnp.ones(1, jnp.float32))
    assert all(np.array_equal(a, b) for a, b in zip(before, jax.tree.leaves(state), strict=True))


def test_a_simulation_that_breaks_stops_the_run(suite):
    envs = make_envs(NAME, [0])
    envs.reset(0)
    data = envs._states[0].data
    envs._states[0] = envs._states[0].replace(data=data.replace(qvel=data.qvel * np.float32(np.nan)))
    with pytest.raises(RunFault, match=r"observation\[\d\] is nan"):
        envs.step(np.zeros((1, 1)), ON)


def test_pictures(suite):
    pytest.importorskip("matplotlib", reason="needs sombrl[video]")
    envs = make_envs("playground:CartpoleSwingup", [0, 1])
    envs.reset(0)
    try:
        first = envs.render(0)
    except SombrlError as error:
        pytest.skip(str(error))
    for _ in range(20):
        envs.step(np.ones((2, 1)), np.ones(2, bool))
    later = envs.render(0)
    assert first.shape == later.shape == (320, 480, 3) and first.dtype == np.uint8
    assert 0 < np.mean(first != later) < 0.5  # the pole moved, the floor did not
