"""The Control Suite through a camera: the suite's own pictures, its own rewards, and a sentence where nothing draws."""

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("dm_control", reason="dm_control is not installed: pip install 'sombrl[dmc]'")

from sombrl.envs.adapters import dmc, opengl
from sombrl.envs.adapters.dmc import DMCEnvs
from sombrl.envs.registry import list_envs, make_envs
from sombrl.errors import SimulatorFault
from sombrl.records import SombrlError

ON = np.ones(1, bool)
CART = "dmc-vision:cartpole-swingup"


@pytest.fixture(scope="module")
def drawing():
    """As a run would find it; skipped with the sentence it would stop with."""
    try:
        opengl.require_opengl(CART)
        DMCEnvs(CART, [0]).reset(0)
    except SombrlError as error:
        pytest.skip(str(error))


def picture(envs, obs):
    return envs.spec.layout.split(obs)["image"]


@pytest.mark.parametrize("task, camera", [("cartpole-swingup", 0), ("quadruped-run", 2)])
def test_pictures_and_rewards_are_the_suites_own(task, camera, drawing):
    envs = make_envs(f"dmc-vision:{task}", [3], action_cost=0.1)
    assert envs.spec.action_repeat == 2 and envs.spec.episode_length == 500 and not envs.spec.discrete
    theirs = dmc._suite("dmc:").load(*task.split("-"), task_kwargs={"random": 0})
    theirs.task.random.seed(np.random.SeedSequence([3, 0]).generate_state(4))
    theirs.reset()
    first = picture(envs, envs.reset(0)[0])
    assert first.shape == (64, 64, 3) and first.dtype == np.uint8 and first.std() > 5
    np.testing.assert_array_equal(first, theirs.physics.render(64, 64, camera_id=camera))
    box, rng = theirs.action_spec(), np.random.default_rng(0)
    for _ in range(3):
        action = rng.uniform(-1, 1, (1, envs.spec.action_dim)).astype(np.float32)
        step = envs.step(action, ON)
        u = box.minimum + 0.5 * (action[0].astype(np.float64) + 1) * (box.maximum - box.minimum)
        frames = [theirs.step(u) for _ in range(2)]
        np.testing.assert_array_equal(picture(envs, step.obs[0]), theirs.physics.render(64, 64, camera_id=camera))
        assert step.reward[0] == pytest.approx(sum(f.reward for f in frames) - 2 * 0.1 * np.linalg.norm(u), abs=1e-12)
    assert not np.array_equal(picture(envs, step.obs[0]), first)
    envs.close()


def test_a_run_resumes_with_the_same_pictures(drawing):
    envs, fresh = (make_envs(CART, [3, 8], env_kwargs={"size": "24"}) for _ in range(2))
    assert envs.reset(1).shape == (2, 24 * 24 * 3)
    both, act = np.ones(2, bool), np.ones((2, 1))
    for _ in range(3):
        step = envs.step(act, both)
    fresh.set_state(envs.get_state())
    assert fresh.get_state()["obs"].tobytes() == step.obs.tobytes()
    one, two = envs.step(-act, both), fresh.step(-act, both)
    assert one.obs.tobytes() == two.obs.tobytes() and one.reward.tobytes() == two.reward.tobytes()
    envs.close(), fresh.close()


@pytest.mark.thorough
def test_workers_draw_the_same(drawing):
    serial, apart = (make_envs(CART, [0, 1], env_kwargs={"size": 16}, workers=workers) for workers in (0, 2))
    assert np.array_equal(serial.reset(0), apart.reset(0))
    act, both = np.ones((2, 1)), np.ones(2, bool)
    assert serial.step(act, both).obs.tobytes() == apart.step(act, both).obs.tobytes()
    apart.close(), serial.close()


def test_numbers_never_draw(monkeypatch):
    envs = DMCEnvs("dmc:cartpole-swingup", [0])
    physics = type(envs.envs[0].physics)
    monkeypatch.setattr(physics, "render", lambda *_, **__: pytest.fail("drew"))
    envs.reset(0)
    assert envs.step(np.zeros((1, 1)), ON).obs.dtype == np.float32 and envs.spec.layout is None


@pytest.mark.parametrize(
    "name, options, told",
    [
        ("dmc-vision:cartpol-swingup", {}, 'did you mean "dmc-vision:cartpole-swingup"'),
        (CART, {"size": 0}, "size must be an integer ≥ 1"),
        (CART, {"colour": 3}, "no option 'colour'; it has size"),
        ("dmc:cartpole-swingup", {"size": 64}, "no option 'size'; it has none"),
    ],
)
def test_refusals(name, options, told, monkeypatch):
    monkeypatch.setattr(dmc, "require_opengl", lambda name: None)
    with pytest.raises(SombrlError, match=told):
        make_envs(name, [0], env_kwargs=options)
    assert "dmc-vision:<domain>-<task>" in dict(list_envs())


TOLD = r"cannot draw \(.*\): install libegl1 or libosmesa6 .* MUJOCO_GL=egl or MUJOCO_GL=osmesa"


def test_nothing_draws(monkeypatch):
    """Before dm_control is loaded: both are tried, in that order."""
    tried = []
    monkeypatch.delitem(sys.modules, "dm_control._render", raising=False)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv(opengl.KNOWN, raising=False)
    monkeypatch.setattr(opengl, "can_draw", lambda backend: tried.append(backend))
    monkeypatch.setattr(opengl, "_try", lambda script, backend: None)
    with pytest.raises(SombrlError, match=TOLD) as error:
        opengl.require_opengl(CART)
    assert tried == ["egl", "osmesa"] and "MUJOCO_GL" not in os.environ and "\n" not in str(error.value)
    monkeypatch.setenv("MUJOCO_GL", "")  # as if it were not there
    monkeypatch.setattr(opengl, "can_draw", lambda backend: backend == "osmesa")
    opengl.require_opengl(CART)
    assert os.environ["MUJOCO_GL"] == "osmesa"
    monkeypatch.setattr(opengl, "can_draw", lambda backend: pytest.fail("it is known to work, also to a worker"))
    opengl.require_opengl(CART)
    monkeypatch.setenv("MUJOCO_GL", "disable")
    with pytest.raises(SombrlError, match=TOLD):
        opengl.require_opengl(CART)


def test_a_probe_that_fails():
    assert not opengl.can_draw("no such library")


@pytest.mark.thorough
@pytest.mark.parametrize("chosen", ["glfw", "nonsense"])
def test_a_choice_that_does_not_draw_leaves_no_run_and_no_trace(chosen, tmp_path):
    """A window on no screen, as a user would see it: one line, and no folder."""
    environ = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", opengl.KNOWN)}
    command = [sys.executable, "-m", "sombrl", "train", "dreamer", "--env", CART, "--size", "tiny", "--out", "run"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environ | {"MUJOCO_GL": chosen}, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 2 and ran.stderr.count("\n") == 1 and os.listdir(tmp_path) == []
    assert f"cannot draw (MUJOCO_GL={chosen} does not work here)" in ran.stderr


def test_where_nothing_draws_because_dm_control_is_broken(monkeypatch):
    """Then another graphics library does not help."""
    monkeypatch.setattr(opengl, "_try", lambda script, backend: "ImportError: libmujoco.so: cannot open")
    assert str(opengl.refuse(CART, "why")).startswith("dm_control is installed but broken (ImportError: libmujoco.so")


def test_a_library_that_breaks_while_drawing(monkeypatch, drawing):
    envs = DMCEnvs(CART, [0])

    def fail(*args, **options):
        raise RuntimeError("no framebuffer\nMore.")

    monkeypatch.setattr(envs.envs[0].physics, "render", fail)
    with pytest.raises(SombrlError, match=r"cannot draw \(RuntimeError: no framebuffer\): install libegl1") as error:
        envs.reset(0)
    assert "\n" not in str(error.value)


def test_a_picture_that_fails_later_is_a_fault_of_the_run(monkeypatch, drawing):
    """It could draw before, so there is nothing to install: the run is saved, or the simulator made anew."""
    envs = DMCEnvs(CART, [0])
    envs.reset(0)

    def fail(*args, **options):
        raise RuntimeError("Offscreen framebuffer is not complete")

    monkeypatch.setattr(envs.envs[0].physics, "render", fail)
    with pytest.raises(SimulatorFault, match="step failed with RuntimeError: Offscreen framebuffer"):
        envs.step(np.zeros((1, 1)), np.ones(1, bool))
    with pytest.raises(SimulatorFault, match="reset failed with RuntimeError: Offscreen framebuffer"):
        envs.reset(1)


def test_a_chosen_library_that_is_not_there(monkeypatch):
    def fail(name):
        raise AttributeError("'NoneType' object has no attribute 'glGetError'")  # what OSMesa's absence looks like

    monkeypatch.setattr(dmc, "require_opengl", lambda name: None)
    monkeypatch.setattr(dmc.importlib, "import_module", fail)
    with pytest.raises(SombrlError, match=TOLD):
        make_envs(CART, [0])
