"""Atari: both protocols frame by frame, on a console of our own and on the real one."""

import importlib.util
import sys

import numpy as np
import pytest

pytest.importorskip("ale_py", reason="ale-py is not installed: pip install 'sombrl[atari]'")
pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'sombrl[atari]'")

import ale_py
from PIL import Image

from sombrl.envs.adapters.atari import PROTOCOLS, AtariEnvs
from sombrl.envs.registry import list_envs, make_envs
from sombrl.records import SombrlError

ON = np.ones(1, bool)


class Console:
    """Counts frames; frame t is of one colour, 10 t in red on even frames and in green on odd ones; reward t."""

    def restoreSystemState(self, state):
        pass

    def __init__(self, end=10**9):
        self.end, self.done, self.frame = end, [], 0

    def reset_game(self):
        self.frame, self.done = 0, []

    def act(self, action):
        self.frame += 1
        self.done.append(action)
        return self.frame

    def game_over(self, with_truncation):
        assert not with_truncation
        return self.frame >= self.end

    def getScreenRGB(self):
        screen = np.zeros((210, 160, 3), np.uint8)
        screen[..., self.frame % 2] = 10 * self.frame % 256
        return screen


def on_console(end=10**9, seed=3, **options):
    envs = AtariEnvs("atari:Pong", [seed], env_kwargs={"noops": 0, **options.pop("env_kwargs", {})}, **options)
    envs.emulators[0] = console = Console(end)
    envs.reset(0)
    return envs, console


def image(envs, obs):
    return envs.spec.layout.split(obs)["image"]


def choose(envs, index):
    return np.eye(envs.spec.action_dim, dtype=np.float32)[None, index]


def test_a_decision_is_four_frames_and_the_brighter_of_the_last_two():
    envs, console = on_console()
    start = image(envs, envs.reset(0)[0])
    assert start.shape == (64, 64, 3) and not start.any()
    step = envs.step(choose(envs, 2), ON)
    assert step.reward[0] == 1 + 2 + 3 + 4 and console.done == [3] * 4  # Pong's third action is to the right, 3
    assert (image(envs, step.obs[0]) == [40, 30, 0]).all()  # frames 4 and 3, not 2
    step = envs.step(choose(envs, 0), ON)
    assert step.reward[0] == 5 + 6 + 7 + 8 and (image(envs, step.obs[0]) == [80, 70, 0]).all()


def test_grey_by_rec_601():
    envs, _ = on_console(env_kwargs={"protocol": "atari200m", "noops": 0, "sticky": 0.0})
    seen = image(envs, envs.step(choose(envs, 0), ON).obs[0])
    assert seen.shape == (96, 96, 1) and (seen == round(0.299 * 40 + 0.587 * 30)).all()


def test_game_over_in_the_middle_terminates():
    envs, console = on_console(end=6)
    assert not envs.step(choose(envs, 0), ON).terminated[0]
    step = envs.step(choose(envs, 0), ON)
    assert step.terminated[0] and not step.truncated[0] and step.reward[0] == 5 + 6 and len(console.done) == 6
    assert (image(envs, step.obs[0]) == [60, 0, 0]).all()  # the frame of the end alone


def test_the_clock_truncates():
    envs, console = on_console(env_kwargs={"frames": 6})
    assert envs.spec.episode_length == 2
    assert not envs.step(choose(envs, 0), ON).truncated[0]
    step = envs.step(choose(envs, 0), ON)
    assert step.truncated[0] and not step.terminated[0] and len(console.done) == 6
    envs, _ = on_console(end=4, episode_length=1)
    step = envs.step(choose(envs, 0), ON)  # both at once: the end of the game counts
    assert step.terminated[0] and not step.truncated[0]


def test_no_ops_are_uniform_from_0_to_30():
    envs, console = on_console(env_kwargs={"noops": 30})
    counts = []
    for episode in range(620):
        envs.reset(episode)
        counts.append(console.frame)
        assert set(console.done) <= {0}
    assert set(counts) == set(range(31))
    assert abs(np.mean(counts) - 15) < 4 * np.sqrt((31**2 - 1) / 12 / 620)


def test_sticky_actions_repeat_what_was_done():
    """With probability p the frame before wins, whatever it did: runs of the old action are geometric."""
    envs, console = on_console(env_kwargs={"sticky": 0.25, "actions": "full"})
    rng, wanted = np.random.default_rng(0), []
    for _ in range(1000):
        chosen = int(rng.integers(18))
        envs.step(choose(envs, chosen), ON)
        wanted += [chosen] * 4
    done, stuck = np.array(console.done), envs._sticks[0, :4000].copy()
    expected, last = [], 0  # nothing was done before the first frame
    for want, stays in zip(wanted, stuck, strict=True):
        last = last if stays else want
        expected.append(last)
    np.testing.assert_array_equal(done, expected)
    assert abs(stuck.mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4000)
    console.reset_game()
    envs.reset(0)
    assert np.array_equal(envs._sticks[0, :4000], stuck)  # of seed and episode alone
    envs.reset(1)
    assert not np.array_equal(envs._sticks[0, :4000], stuck)


def test_the_real_console_frame_by_frame():
    """Our pictures and rewards from ale-py's raw frames."""
    envs = make_envs("atari:Breakout", [3])
    raw = ale_py.ALEInterface()
    raw.setFloat("repeat_action_probability", 0.0)
    raw.loadROM(ale_py.roms.get_rom_path("breakout"))
    raw.reset_game()
    first = image(envs, envs.reset(0)[0])
    waits = int(np.random.default_rng([3, 0]).integers(0, 30, endpoint=True))
    for _ in range(waits):
        raw.act(0)

    def shrink(screen):
        return np.asarray(Image.fromarray(screen).resize((64, 64), Image.Resampling.BILINEAR))

    np.testing.assert_array_equal(first, shrink(raw.getScreenRGB()))
    rng, total, moved = np.random.default_rng(4), 0.0, 0
    actions = [a.value for a in raw.getMinimalActionSet()]
    assert actions == [0, 1, 3, 4] == envs.physical(np.eye(4)).tolist()
    for _ in range(150):
        chosen = int(rng.choice(4, p=[0.1, 0.5, 0.2, 0.2]))
        step = envs.step(choose(envs, chosen), ON)
        rewards, screens = [], []
        for _ in range(4):
            rewards.append(raw.act(actions[chosen]))
            screens.append(raw.getScreenRGB())
        assert step.reward[0] == sum(rewards)
        np.testing.assert_array_equal(image(envs, step.obs[0]), shrink(np.maximum(screens[2], screens[3])))
        total, moved = total + step.reward[0], moved + int((image(envs, step.obs[0]) != first).any())
        assert not step.terminated[0] and not step.truncated[0]  # lives are lost, the game goes on
    assert total > 0 and moved > 100 and raw.lives() < 5 and np.array_equal(envs.render(0), raw.getScreenRGB())


@pytest.mark.parametrize(
    "protocol, shape, actions, sticky", [("atari100k", (64, 64, 3), 6, 0.0), ("atari200m", (96, 96, 1), 18, 0.25)]
)
def test_protocols(protocol, shape, actions, sticky):
    envs = make_envs("atari:Pong", [0], env_kwargs={"protocol": protocol})
    assert envs.spec.layout.parts[0].shape == shape and envs.spec.discrete and envs.spec.action_repeat == 4
    assert envs.spec.action_dim == actions and envs.spec.episode_length * 4 == 108_000
    assert PROTOCOLS[protocol].sticky == sticky and PROTOCOLS[protocol].noops == 30


def test_a_killed_run_resumes_bit_for_bit():
    # A game whose screen the emulator's own saved state leaves behind.
    envs, fresh = (make_envs("atari:q_bert", [1, 2], env_kwargs={"protocol": "atari200m"}) for _ in range(2))
    assert envs.spec.name == "atari:Qbert"
    both, rng = np.ones(2, bool), np.random.default_rng(0)
    envs.reset(0)
    for _ in range(60):
        envs.step(rng.normal(size=(2, 18)), both)
    envs.reset_rows(np.array([True, False]), np.array([5, 0]))
    for _ in range(20):
        envs.step(rng.normal(size=(2, 18)), both)
    saved = {key: value.copy() for key, value in envs.get_state().items()}
    actions = rng.normal(size=(40, 2, 18))
    after = [envs.step(action, both) for action in actions]
    fresh.set_state(saved)
    for action, step in zip(actions, after, strict=True):
        again = fresh.step(action, both)
        assert again.obs.tobytes() == step.obs.tobytes() and again.reward.tobytes() == step.reward.tobytes()
    assert any(step.reward.any() for step in after)
    with pytest.raises(SombrlError, match="did not replay to the saved picture"):
        fresh.set_state({**saved, "obs": saved["obs"] ^ np.uint8(1)})


def test_starts_do_not_depend_on_the_game_before():
    """The emulator's own reset does, in Seaquest."""
    envs, fresh = (make_envs("atari:Seaquest", [1]) for _ in range(2))
    envs.reset(0)
    for _ in range(30):
        envs.step(choose(envs, 2), ON)
    assert np.array_equal(envs.reset(4), fresh.reset(4))
    for index in (1, 4, 3, 2) * 8:
        assert np.array_equal(envs.step(choose(envs, index), ON).obs, fresh.step(choose(envs, index), ON).obs)


@pytest.mark.parametrize(
    "name, options, told",
    [
        ("atari:Ventur", {}, 'did you mean "atari:Venture"'),
        ("atari:MsPackman", {}, 'did you mean "atari:MsPacman"'),
        ("atari:Combat", {}, 'unknown environment "atari:Combat"'),  # for two players
        ("atari:Pong", {"action_cost": 0.1}, "discrete actions"),
        ("atari:Pong", {"endless": True}, "terminates"),
        ("atari:Pong", {"env_kwargs": {"protocol": "atari1m"}}, "'atari100k' or 'atari200m'"),
        ("atari:Pong", {"env_kwargs": {"lives": 1}}, "no option 'lives'; it has protocol, size"),
        ("atari:Pong", {"env_kwargs": {"sticky": "1.5"}}, "probability below 1"),
        ("atari:Pong", {"env_kwargs": {"actions": "some"}}, "'minimal' or 'full'"),
        ("atari:Pong", {"env_kwargs": {"noops": -1}}, "noops must be"),
        ("atari:Pong", {"env_kwargs": {"grey": 3}}, "grey must be true or false"),
    ],
)
def test_refusals(name, options, told):
    with pytest.raises(SombrlError, match=told) as error:
        make_envs(name, [0], **options)
    assert "\n" not in str(error.value)


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(SombrlError, match=r"needs ale-py, which is not installed; pip install 'sombrl\[atari\]'"):
        make_envs("atari:Pong", [0])
    assert "pip install 'sombrl[atari]'" in dict(list_envs())["atari:<Game>"]


@pytest.mark.parametrize("module, package", [("ale_py", "ale-py"), ("PIL.Image", "Pillow")])
def test_a_broken_package(module, package, monkeypatch):
    load = importlib.import_module

    def fail(name):
        if name == module:
            raise ImportError("libGL.so.1: cannot open shared object file")
        return load(name)

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(SombrlError, match=rf"{package} is installed but broken \(ImportError: libGL.so.1.*{package}\."):
        make_envs("atari:Pong", [0])


def test_gymnasiums_own_atari_goes_through_the_adapter_for_images():
    envs = make_envs("ale_py:ALE/Pong-v5", [0], episode_length=10)
    envs.reset(0)
    assert envs.spec.layout.parts[0].shape == (210, 160, 3) and envs.spec.action_dim == 6
    assert envs.step(choose(envs, 1), ON).obs.dtype == np.uint8
    envs.close()
