"""The DeepMind Control adapter: the suite's own numbers, exact resumption, and everything it refuses."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("dm_control", reason="dm_control is not installed: pip install 'sombrl[dmc]'")

from sombrl.envs.adapters import dmc
from sombrl.envs.adapters.dmc import DMCEnvs
from sombrl.envs.check import check_env
from sombrl.envs.registry import list_envs, make_envs
from sombrl.records import RunFault, SombrlError

ON = np.ones(1, bool)
SUITE = dmc._suite("dmc:")  # with the OpenGL library that the adapter chooses
CART = "dmc:cartpole-swingup"


def one(name=CART, **options):
    envs = DMCEnvs(name, [3], **options)
    envs.reset(0)
    return envs


def play(envs, steps, rng):
    shape = (len(envs.seeds), envs.spec.action_dim)
    return [envs.step(rng.uniform(-1, 1, shape), np.ones(len(envs.seeds), bool)) for _ in range(steps)]


def bits(steps):
    return [part.tobytes() for step in steps for part in (step.obs, step.reward, step.terminated, step.truncated)]


@pytest.mark.parametrize("task", ["cartpole-swingup", "reacher-hard", "quadruped-run", "cheetah-run"])
def test_numbers_are_the_suites_own(task):
    """The suite's `step`, with its clock, against ours: same starts, same frames, same rewards."""
    envs = one(f"dmc:{task}", action_repeat=2)
    theirs = SUITE.load(*task.split("-"), task_kwargs={"random": 0})
    theirs.task.random.seed(np.random.SeedSequence([3, 0]).generate_state(4))
    first = theirs.reset()
    flat = np.concatenate([np.ravel(part) for part in first.observation.values()])
    np.testing.assert_array_equal(envs.get_state()["obs"][0], flat.astype(np.float32))
    box, rng = theirs.action_spec(), np.random.default_rng(0)
    for _ in range(5):
        action = rng.uniform(-1, 1, (1, envs.spec.action_dim)).astype(np.float32)
        step = envs.step(action, ON)
        u = box.minimum + 0.5 * (action[0].astype(np.float64) + 1) * (box.maximum - box.minimum)
        frames = [theirs.step(u) for _ in range(2)]
        flat = np.concatenate([np.ravel(part) for part in frames[-1].observation.values()])
        np.testing.assert_array_equal(step.obs[0], flat.astype(np.float32))
        assert step.reward[0] == sum(frame.reward for frame in frames)


def test_sizes():
    for name, obs_dim, action_dim in [(CART, 5, 1), ("dmc:humanoid-walk", 67, 21)]:
        spec = DMCEnvs(name, [0], action_repeat=2).spec
        assert (spec.name, spec.obs_dim, spec.action_dim) == (name, obs_dim, action_dim)
        assert (spec.episode_length, spec.action_repeat) == (500, 2)
    assert one().task is None and not one().downstream


def test_the_suite_agrees_on_the_length_of_an_episode():
    theirs, frames = SUITE.load("pendulum", "swingup", task_kwargs={"random": 0}), 0
    step = theirs.reset()
    while not step.last():
        step, frames = theirs.step(np.zeros(1)), frames + 1
    assert frames == dmc.EPISODE_FRAMES and step.discount == 1.0


@pytest.mark.parametrize(
    "task",
    [
        "cartpole-swingup_sparse",
        "reacher-hard",  # the target is in the model
        "finger-spin",
        "finger-turn_hard",
        "hopper-hop",
        "humanoid-walk",
        "quadruped-run",
        "point_mass-hard",  # and so are the gains
    ],
)
def test_a_killed_run_resumes_bit_for_bit(task):
    envs, fresh = (DMCEnvs(f"dmc:{task}", [3, 8], action_repeat=2) for _ in range(2))
    envs.reset(6)
    rng = np.random.default_rng(0)
    play(envs, 10, rng)
    envs.reset_rows(np.array([False, True]), np.array([0, 2]))
    play(envs, 20, rng)
    saved = {key: value.copy() for key, value in envs.get_state().items()}
    after = bits(play(envs, 30, np.random.default_rng(1)))
    fresh.reset(4)  # another episode, with other targets
    play(fresh, 3, rng)
    fresh.set_state(saved)
    assert bits(play(fresh, 30, np.random.default_rng(1))) == after
    envs.set_state(saved)  # back in time, on the same object
    assert bits(play(envs, 30, np.random.default_rng(1))) == after


def test_starts_depend_on_seed_and_episode_alone():
    envs, others = (DMCEnvs("dmc:reacher-hard", seeds) for seeds in ([3, 4], [4]))
    first = envs.reset(5)
    others.reset(0)
    play(others, 3, np.random.default_rng(0))
    np.testing.assert_array_equal(others.reset(5)[0], first[1])
    targets = [env.physics.named.model.geom_pos["target", "x"] for env in (envs.envs[1], others.envs[0])]
    assert targets[0] == targets[1] != envs.envs[0].physics.named.model.geom_pos["target", "x"]


def test_the_suites_generator_is_not_shared():
    """A task that drew numbers while stepping would go on exactly, too."""
    envs = one()
    draw = envs.envs[0].task.random.randn(3)  # an odd number: half a pair is cached
    saved = envs.get_state()
    ahead = envs.envs[0].task.random.randn(3)
    envs.reset(1)
    envs.set_state(saved)
    np.testing.assert_array_equal(envs.envs[0].task.random.randn(3), ahead)
    assert not np.array_equal(draw, ahead)


def test_actions_are_scaled_to_the_bounds_and_cost_their_norm():
    free, paid = (one("dmc:quadruped-walk", action_cost=k, action_repeat=2) for k in (0.0, 0.5))
    action = np.linspace(-1, 1, 12)[None]
    box = free.envs[0].action_spec()
    u = free.physical(action)[0]
    np.testing.assert_allclose(free.physical(np.array([-np.ones(12), np.ones(12)])), [box.minimum, box.maximum])
    charged = free.step(action, ON).reward[0] - paid.step(action, ON).reward[0]
    assert charged == pytest.approx(2 * 0.5 * np.linalg.norm(u), rel=1e-6)
    np.testing.assert_allclose(free.envs[0].physics.control(), u, atol=1e-6)


def test_the_clock_counts_frames():
    envs = one(action_repeat=3, episode_length=2)
    assert [step.truncated[0] for step in play(envs, 2, np.random.default_rng(0))] == [False, True]
    assert one(action_repeat=3).spec.episode_length == 334  # the last decision has one frame
    assert one(episode_length=5000).spec.episode_length == 1000  # the suite's limit wins
    assert one(endless=True).spec.episode_length > 10**8


@pytest.mark.parametrize("discount, terminated", [(0.0, True), (1.0, False)])
def test_a_discount_of_zero_terminates(discount, terminated, monkeypatch):
    envs = one(action_repeat=4)
    frames = iter([None, discount])
    monkeypatch.setattr(envs.envs[0].task, "get_termination", lambda physics: next(frames))
    step = envs.step(np.zeros((1, 1)), ON)
    assert step.terminated[0] == terminated and step.truncated[0] != terminated
    assert envs.get_state()["frames"][0] == 2  # the end stops the repeat


def test_a_broken_simulator_names_the_place(monkeypatch):
    envs = one()
    envs.step(np.zeros((1, 1)), ON)
    task = envs.envs[0].task
    monkeypatch.setattr(task, "get_observation", lambda physics: {"a": np.zeros(3), "b": np.array([0.0, np.nan])})
    with pytest.raises(RunFault, match=r"swingup \(seed 3, episode 0, step 1\): observation\[4\] is nan"):
        envs.step(np.zeros((1, 1)), ON)
    monkeypatch.undo()
    monkeypatch.setattr(task, "get_reward", lambda physics: np.nan)
    with pytest.raises(RunFault, match=r"swingup \(seed 3, episode 0, step 1\): reward is nan"):
        envs.step(np.zeros((1, 1)), ON)
    monkeypatch.undo()
    envs.envs[0].physics.data.qvel[:] = 1e30  # MuJoCo itself notices this one
    with pytest.raises(RunFault, match=r"swingup \(seed 3, episode 0, step 1\): step failed with PhysicsError"):
        envs.step(np.zeros((1, 1)), ON)


@pytest.mark.parametrize(
    "name, options, told",
    [
        ("dmc:cartpol-swingup", {}, 'did you mean "dmc:cartpole-swingup"'),
        ("dmc:cartpole-swingupsparse", {}, 'did you mean "dmc:cartpole-swingup_sparse"'),
        ("dmc:cartpole/swingup", {}, 'did you mean "dmc:cartpole-swingup"'),
        ("dmc:", {}, "see: sombrl list envs"),
        ("dmc:lqr-lqr_2_1", {}, "no bounds"),
        (CART, {"action_repeat": 0}, "action_repeat must be an integer ≥ 1, not 0"),
        (CART, {"env_kwargs": {"time_limit": 3}}, "no option 'time_limit'; it has none"),
        ("dmc:manipulator-bring_ball", {"env_kwargs": {"fully": True}}, "no option 'fully'; it has fully_observable"),
    ],
)
def test_refusals(name, options, told):
    with pytest.raises(SombrlError, match=told) as error:
        make_envs(name, [0], **options)
    assert "\n" not in str(error.value)


def test_without_dm_control(monkeypatch):
    monkeypatch.setattr(dmc.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SombrlError, match=r"needs dm_control, which is not installed; pip install 'sombrl\[dmc\]'"):
        make_envs(CART, [0])
    assert any(name == "dmc:<domain>-<task>" and "pip install" in text for name, text in list_envs())


@pytest.mark.parametrize(
    "chosen, told",
    [
        ("", "dm_control is installed but broken (OSError: no library)"),
        ("egl", "cannot be imported with MUJOCO_GL=egl (OSError: no library): start without"),
    ],
)
def test_a_broken_dm_control(chosen, told, monkeypatch):
    def fail(name):
        raise OSError("no library\nMore.")

    monkeypatch.setattr(dmc, "_choose_opengl", lambda: None)
    monkeypatch.setenv("MUJOCO_GL", chosen)
    monkeypatch.setattr(dmc.importlib, "import_module", fail)
    with pytest.raises(SombrlError) as error:
        make_envs(CART, [0])
    assert told in str(error.value) and "\n" not in str(error.value)


def test_an_option_of_a_task():
    seeing, blind = (
        make_envs("dmc:manipulator-bring_ball", [0], env_kwargs={"fully_observable": flag}).spec.obs_dim
        for flag in ("True", "False")
    )
    assert seeing > blind


def test_listing():
    rows = dict(list_envs())
    assert "dmc:<domain>-<task>" in rows
    assert "swingup_sparse" in rows["dmc:cartpole-<task>"] and "dmc:lqr-<task>" not in rows


def test_check_env():
    findings = check_env("dmc:cartpole-balance")
    assert {finding.level for finding in findings} == {"ok"}
    text = " ".join(finding.sentence for finding in findings)
    assert "will be learned" in text and "at most 500 decisions of 2 frame(s)" in text and "the same trajectory" in text


def test_pictures_only_where_asked_for():
    with pytest.raises(SombrlError, match="pass render=True"):
        one().render(0)
    with pytest.raises(SombrlError, match="call reset"):
        DMCEnvs(CART, [0], render=True).render(0)


def test_a_picture():
    """In a process of its own: the OpenGL library is chosen once per process."""
    program = (
        "from sombrl.envs.adapters.dmc import DMCEnvs; envs = DMCEnvs('dmc:cartpole-swingup', [0], render=True);"
        "envs.reset(0); picture = envs.render(0); print(picture.shape, picture.dtype, picture.std() > 5); envs.close()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    if ran.returncode != 0 and "SombrlError" in ran.stderr:
        assert "cannot draw" in ran.stderr.splitlines()[-1]
        pytest.skip("no OpenGL here")
    assert ran.stdout.split("\n")[0] == "(240, 320, 3) uint8 True"


def test_no_opengl_is_one_sentence(monkeypatch):
    envs = one(render=True)

    def fail(*args, **options):
        raise RuntimeError("No OpenGL rendering backend is available.\nMore.")

    monkeypatch.setattr(dmc, "require_opengl", lambda name: None)
    monkeypatch.setattr(envs.envs[0].physics, "render", fail)
    with pytest.raises(SombrlError, match=r"cannot draw \(RuntimeError: No OpenGL .*MUJOCO_GL=egl") as error:
        envs.render(0)
    assert "\n" not in str(error.value)
