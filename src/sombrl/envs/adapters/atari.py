"""Atari games behind the loop's interface: `atari:Game`, one emulator per seed, by the two usual protocols.

Nothing here loads JAX, so that emulator processes start fast and stay small (`processes.py`).
"""

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.config.suggestions import nearest
from sombrl.envs.guards import check_choice, check_cost, check_count, check_seeds, refuse_cost, refuse_end
from sombrl.envs.interface import AbstractEnvs, EnvSpec, Step
from sombrl.envs.layout import ObsLayout, Part
from sombrl.envs.rows import Rows
from sombrl.errors import SombrlError
from sombrl.optional import require

PREFIX = "atari:"
FRAME_SKIP = 4  # frames of a decision
NOOP = 0
GREY = np.array([0.299, 0.587, 0.114])  # Rec. 601 luma


@dataclasses.dataclass(frozen=True)
class Protocol:
    """What differs between published results. Every field is an option of its own."""

    size: int = 64
    """Pixels of a side."""
    grey: bool = False
    """One channel instead of three."""
    sticky: float = 0.0
    """Sticky-action probability: a frame repeats the action of the frame before."""
    actions: str = "minimal"
    """minimal: those that the game uses; full: all 18 of the joystick."""
    noops: int = 30
    """An episode starts after 0 to so many frames of doing nothing, drawn uniformly."""
    frames: int = 108_000
    """The time limit, half an hour of play; it truncates."""

    def __post_init__(self) -> None:
        """Refuse what no game could be played by."""
        check_count(self.size, "size")
        check_count(self.frames, "frames")
        check_choice(self.actions, "actions", ("minimal", "full"))
        if check_cost(self.sticky, "sticky") >= 1:
            raise SombrlError(f"sticky must be a probability below 1, not {self.sticky!r}.")
        if self.noops != 0:
            check_count(self.noops, "noops")

    @property
    def layout(self) -> ObsLayout:
        """One image."""
        return ObsLayout((Part("image", (self.size, self.size, 1 if self.grey else 3), "image"),))


PROTOCOLS = {"atari100k": Protocol(), "atari200m": Protocol(size=96, grey=True, sticky=0.25, actions="full")}


class AtariEnvs(AbstractEnvs):
    """One emulator of a game per seed.

    A decision is four frames: rewards summed as the game gives them, the picture the maximum of the last two frames
    (some objects are drawn in every other frame only). Losing a life is part of the game; only its end terminates.
    """

    task = None

    def __init__(
        self,
        name: str,
        seeds: Sequence[int],
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        action_repeat: int = FRAME_SKIP,
        action_cost: float = 0.0,
        episode_length: int | None = None,
        endless: bool = False,
        render: bool = False,
    ):
        """`env_kwargs` are `protocol`, a name of `PROTOCOLS`, and fields of `Protocol` that replace its own.

        `episode_length` is in decisions. Pictures need no `render`.
        """
        self.seeds = check_seeds(seeds)
        repeat = check_count(action_repeat, "action_repeat")
        rom, name = find_game(name)
        if check_cost(action_cost) > 0:
            raise refuse_cost(name)
        if endless:
            raise refuse_end(name)
        self.protocol = _protocol(name, dict(env_kwargs or {}))
        limit = self.protocol.frames
        if episode_length is not None:
            limit = min(limit, check_count(episode_length, "episode_length") * repeat)
        self._frame_limit = limit
        self.emulators = [_emulator(rom) for _ in self.seeds]
        self._blank = [emulator.cloneSystemState() for emulator in self.emulators]
        first, full = self.emulators[0], self.protocol.actions == "full"
        self._actions = [a.value for a in (first.getLegalActionSet() if full else first.getMinimalActionSet())]
        self._layout = self.protocol.layout
        length = -(-limit // repeat)  # a last decision may have fewer frames
        self.spec = EnvSpec(
            name, self._layout.length, len(self._actions), length, repeat, layout=self._layout, discrete=True
        )
        count = len(self.seeds)
        self._rows = Rows(self.spec, self.seeds)
        self._frames, self._last = np.zeros(count, np.int64), np.full(count, NOOP, np.int64)
        self._sticks = np.zeros((count, limit), bool)  # whether a frame of the episode repeats the one before
        self._chosen = np.zeros((count, length), np.uint8)  # the actions of the episode

    def reset_rows(self, rows: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """Start the given episode on the given rows; where all of them are, [seeds, obs]."""
        for row, episode in self._rows.check_reset(rows, episodes):
            self._begin(row, episode)
        return self._rows.obs.copy()

    def _begin(self, row: int, episode: int) -> None:
        """All randomness of the episode is drawn here: the emulator itself has none."""
        emulator, protocol = self.emulators[row], self.protocol
        self._rows.begin(row, episode)
        self._frames[row], self._last[row] = 0, NOOP
        rng = np.random.default_rng([self.seeds[row], episode])
        waits = int(rng.integers(0, protocol.noops, endpoint=True))
        if protocol.sticky > 0:
            self._sticks[row] = rng.random(self._frame_limit) < protocol.sticky
        # A reset alone keeps some state of the last game: a dozen games would then start differently.
        emulator.restoreSystemState(self._blank[row])
        emulator.reset_game()
        for _ in range(waits):
            emulator.act(NOOP)
            if emulator.game_over(with_truncation=False):
                emulator.reset_game()
        self._rows.see(row, self._show(emulator.getScreenRGB()))

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Execute the largest of each row of `actions` on the rows that are active."""
        at = self._rows
        actions, active = at.check_step(actions, active)
        reward = np.zeros(len(self.seeds), np.float64)
        terminated, truncated = np.zeros(len(self.seeds), bool), np.zeros(len(self.seeds), bool)
        for row in np.flatnonzero(active).tolist():
            at.require_finite(row, actions[row], "action")
            reward[row], terminated[row], truncated[row], screen = self._decide(row, int(np.argmax(actions[row])))
            at.see(row, self._show(screen))
        return Step(at.obs.copy(), reward, terminated, truncated)

    def _decide(self, row: int, chosen: int) -> tuple[float, bool, bool, np.ndarray]:
        """All frames of one decision, counted; the last value is the screen."""
        emulator, total, ended, screens = self.emulators[row], 0.0, False, []
        action, repeat, at = self._actions[chosen], self.spec.action_repeat, self._rows
        self._chosen[row, at.decisions[row]] = chosen
        for frame in range(repeat):
            if not self._sticks[row, self._frames[row]]:
                self._last[row] = action
            total += float(emulator.act(int(self._last[row])))
            self._frames[row] += 1
            ended = bool(emulator.game_over(with_truncation=False))
            over = ended or bool(self._frames[row] >= self._frame_limit)
            if over or frame >= repeat - 2:
                screens.append(emulator.getScreenRGB())
            if over:
                break
        truncated = not ended and bool(self._frames[row] >= self._frame_limit)
        at.decisions[row] += 1
        at.over[row] = ended or truncated
        return total, ended, truncated, np.maximum(screens[-1], screens[max(len(screens) - 2, 0)])

    def _show(self, screen: np.ndarray) -> np.ndarray:
        """The screen of the console, [210, 160, 3], as a row of bytes."""
        from PIL import Image

        side = self.protocol.size
        picture = np.asarray(Image.fromarray(screen).resize((side, side), Image.Resampling.BILINEAR))
        if self.protocol.grey:
            picture = np.rint(picture @ GREY).astype(np.uint8)[..., None]
        return self._layout.flatten({"image": picture})

    def physical(self, actions: np.ndarray) -> np.ndarray:
        """The chosen actions by the emulator's numbers."""
        return np.asarray(np.array(self._actions)[np.argmax(actions, axis=-1)])

    def get_state(self) -> dict[str, np.ndarray]:
        """The episodes and what was done in them.

        The emulator's own state would be faster, but the screen is not part of it, and a few games draw it in pieces.
        """
        longest = int(self._rows.decisions.max())
        return {**self._rows.get_state(), "actions": self._chosen[:, :longest].copy()}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Replay each row's episode; refuse to go on unless it leads to the same picture, bit for bit."""
        self._rows.check_state(state, {"actions": (None,)})
        self._rows = Rows(self.spec, self.seeds)
        for row, episode in enumerate(state["episode"].tolist()):
            if episode < 0:
                continue
            self._begin(row, episode)
            screen = None
            for chosen in state["actions"][row, : int(state["decisions"][row])].tolist():
                *_, screen = self._decide(row, chosen)
            if screen is not None:
                self._rows.see(row, self._show(screen))
        if self._rows.obs.tobytes() != np.asarray(state["obs"], np.uint8).tobytes():
            raise SombrlError(
                f"{self.spec.name} did not replay to the saved picture, so this run cannot be resumed mid-episode: use "
                "the versions of ale-py and Pillow that it was saved with."
            )

    def render(self, row: int) -> np.ndarray:
        """The screen of the console, uint8 [210, 160, 3]."""
        self._rows.require_started(row)
        return np.array(self.emulators[row].getScreenRGB(), np.uint8)


def find_game(name: str) -> tuple[str, str]:
    """ale-py's name of the game and ours, of "atari:MsPacman" as of "atari:ms_pacman"; or the nearest, refused."""
    for module, package in (("ale_py", "ale-py"), ("PIL.Image", "Pillow")):
        require(module, package, f"\"{name}\" needs {package}, which is not installed; pip install 'sombrl[atari]'.")
    games = _games()
    wanted = name.replace("_", "").lower()
    for ours, rom in games.items():
        if ours.lower() == wanted:
            return rom, ours
    raise nearest(name, games, "environment")


def game_names() -> list[str]:
    """The names of all games, where ale-py is installed."""
    return [] if importlib.util.find_spec("ale_py") is None else list(_games())


def _games() -> dict[str, str]:
    """ale-py's name of every game, by ours."""
    from ale_py import ALEInterface, roms

    # The others need two players, and loading one would end the process.
    known = [rom for rom in roms.get_all_rom_ids() if ALEInterface.isSupportedROM(_rom_path(rom))]
    return {f"{PREFIX}{rom.title().replace('_', '')}": rom for rom in known}


def list_games() -> list[tuple[str, str]]:
    """A row for `sombrl list envs`."""
    about = "Arcade Learning Environment, for dreamer; options protocol=atari100k|atari200m, "
    about += ", ".join(f"{field.name}={field.default!r}" for field in dataclasses.fields(Protocol))
    if importlib.util.find_spec("ale_py") is None:
        about += "; pip install 'sombrl[atari]'"
    return [(f"{PREFIX}<Game>", about)]


def _protocol(name: str, kwargs: dict[str, Any]) -> Protocol:
    protocol = PROTOCOLS[check_choice(kwargs.pop("protocol", "atari100k"), "protocol", tuple(PROTOCOLS))]
    fields = [field.name for field in dataclasses.fields(Protocol)]
    unknown = [key for key in kwargs if key not in fields]
    if unknown:
        raise SombrlError(f"{name} has no option {unknown[0]!r}; it has protocol, {', '.join(fields)}.")
    if not isinstance(kwargs.get("grey", False), bool):
        raise SombrlError(f"grey must be true or false, not {kwargs['grey']!r}.")
    return dataclasses.replace(protocol, **kwargs)


def _emulator(rom: str) -> Any:
    """An emulator with the game loaded. Sticky actions are drawn by us, so its own are off."""
    from ale_py import ALEInterface, LoggerMode

    ALEInterface.setLoggerMode(LoggerMode.Error)
    emulator = ALEInterface()
    emulator.setFloat("repeat_action_probability", 0.0)
    emulator.setInt("random_seed", 0)
    emulator.loadROM(_rom_path(rom))
    return emulator


def _rom_path(rom: str) -> Path:
    from ale_py import roms

    path = roms.get_rom_path(rom)
    assert path is not None  # ale-py named it
    return path
