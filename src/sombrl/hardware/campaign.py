"""A campaign is a folder: policies, episodes and logs of one car. What comes next follows from what is in it.

    config.json  manifest.json      what was asked for, and by which software
    policies/000.npz                what drives episode 0
    episodes/000.npz                episode 0: there once it is finished and committed
    metrics.jsonl                   a row per committed episode
    interventions.jsonl             every event of the supervisor, also of episodes that were cut short
    learner/                        the learner's heartbeat, manifest, log and checkpoints
    STOP                            create it, and the car stops

Policy n is trained from the episodes before n, then episode n is driven with it. Every file appears complete or not at
all, so when any process dies, at any moment, the campaign goes on with the policy or the episode that is missing.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Interval

from sombrl.config.check import Configuration
from sombrl.config.json import from_json, to_json
from sombrl.config.kinds import Advice
from sombrl.errors import RunFault, SombrlError
from sombrl.hardware.encoding import ACTION_DIM, OBS_DIM
from sombrl.hardware.episode import Episode
from sombrl.hardware.files import read_json
from sombrl.hardware.policy import Actor
from sombrl.hardware.supervisor import SupervisorConfig
from sombrl.storage.files import new_folder, write_synced, write_whole
from sombrl.storage.provenance import provenance
from sombrl.storage.run_folder import RunFolder


@dataclasses.dataclass(frozen=True)
class CampaignConfig(Configuration):
    """What is driven, what learns, and how long."""

    backend: str = "sim"
    """sim, replay, remote, or module:name, a class of the kind CarBackend or a function that is said to return one."""
    backend_options: tuple[str, ...] = ()
    """Its options as name=value."""
    trainer: str = "sim-fsvgd"
    """An algorithm that learns a policy (`sombrl list algorithms`), random, or module:function."""
    trainer_options: tuple[str, ...] = ()
    """Its options as name=value, a dot for nested ones: env=rc-car sac.batch_size=64."""
    episodes: Annotated[int, Ge(1)] = 20
    """Episodes in all."""
    steps: Annotated[int, Ge(1)] = 100
    """Actions per episode."""
    rate: Annotated[float, Interval(ge=1, le=200), Advice("it is in actions per second")] = 30.0
    """Actions per second."""
    seed: Annotated[int, Ge(0)] = 0
    """Of the learner."""
    reset: Literal["teleport", "manual", "auto"] = "teleport"
    """How the car gets back to the start: by the simulator, by a person, or by reset_policy."""
    reset_policy: str | None = None
    """auto: a policy that can park, a file as in policies/."""
    margin_factor: Annotated[float, Gt(0)] = 5.0
    """The reward's: 0.1 of it is the distance beyond which less than 0.1 is paid. 20 is dense, 5 sparse."""
    supervisor: SupervisorConfig = dataclasses.field(default_factory=SupervisorConfig)

    def refuse_combinations(self) -> None:
        """A policy that parks is what drives the car back."""
        if (self.reset == "auto") != (self.reset_policy is not None):
            raise SombrlError("--reset auto and --reset-policy FILE belong together: give both or neither.")


class Campaign:
    """One on disk. Make it with `create` or `open`; hold `lock()` while driving."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.folder = RunFolder(self.path)  # its metrics and its lock
        self.learner = self.path / "learner"
        self.events_path = self.path / "interventions.jsonl"
        self.stop_path = self.path / "STOP"

    @classmethod
    def create(cls, path: Path, config: CampaignConfig, command: list[str]) -> "Campaign":
        """A new one; refuses a folder with anything in it."""
        refuse_other(path)
        manifest = {"kind": "campaign", **provenance(command)}
        with new_folder(path, "create the campaign") as aside:
            for name in ("episodes", "policies", "learner"):
                (aside / name).mkdir()
            for name, content in (("config.json", to_json(config)), ("manifest.json", manifest)):
                write_synced(aside / name, json.dumps(content, indent=2).encode())
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "Campaign":
        """One that is there already."""
        if not path.exists():
            raise SombrlError(f"there is no campaign {path}: `sombrl hardware run {path}` starts one.")
        if not is_campaign(path):
            raise SombrlError(f"{path} is not a campaign (no manifest.json that says so): give a campaign's folder.")
        return cls(path)

    @property
    def config(self) -> CampaignConfig:
        """As it is on disk now."""
        try:
            return from_json(CampaignConfig, json.loads((self.path / "config.json").read_text()))
        except (OSError, ValueError, TypeError, AttributeError, SombrlError) as error:
            raise SombrlError(f"cannot read {self.path / 'config.json'} ({error}): restore it from a copy.") from error

    def extend(self, episodes: int) -> None:
        """Another number of episodes in all."""
        config = dataclasses.replace(self.config, episodes=episodes)
        write_whole(self.path / "config.json", json.dumps(to_json(config), indent=2))

    def require_same(self, given: CampaignConfig) -> None:
        """A campaign is resumed as it was begun; only its number of episodes may change."""
        config = self.config
        for field in dataclasses.fields(CampaignConfig):
            ours, theirs = getattr(given, field.name), getattr(config, field.name)
            if field.name != "episodes" and ours != theirs:
                flag = "--" + field.name.replace("_", "-")
                raise SombrlError(
                    f"{self.path} was begun with {flag} {theirs}, not {ours}: leave {flag} out, or choose another "
                    "folder."
                )
        if given.episodes < (done := self.committed()):
            raise SombrlError(f"{self.path} already has {done} episodes: --episodes cannot be {given.episodes}.")

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Be the only controller."""
        return _only(self.folder, f"another process is driving the campaign {self.path}: only one may.", patience=0.0)

    def lock_learner(self) -> contextlib.AbstractContextManager[None]:
        """Be the only learner; one whose controller was killed needs a moment to notice."""
        folder = RunFolder(self.learner)
        return _only(folder, f"another learner works on {self.path}: only one may.", patience=10.0)

    # ------------------------------------------------------------------------------------------ the state

    def episode_path(self, number: int) -> Path:
        """Where an episode is, once committed."""
        return self.path / "episodes" / f"{number:03d}.npz"

    def policy_path(self, number: int) -> Path:
        """Where a policy is, once trained."""
        return self.path / "policies" / f"{number:03d}.npz"

    def committed(self) -> int:
        """How many episodes are finished: the number of the one to come."""
        names = {path.name for path in (self.path / "episodes").glob("*.npz")}
        for path in map(self.episode_path, range(len(names))):
            if path.name not in names:
                raise SombrlError(
                    f"{path} is missing though later ones are there: put it back from a copy, or delete the later ones."
                )
        return len(names)

    def missing_policy(self) -> int | None:
        """The number of the policy that must be trained now, if one must."""
        number = self.committed()
        done = number >= self.config.episodes or self.policy_path(number).exists()
        return None if done else number

    def episodes(self, number: int) -> list[Episode]:
        """The first `number` episodes, checked."""
        return [Episode.load(self.episode_path(n)) for n in range(number)]

    def policy(self, number: int) -> tuple[Actor, dict[str, Any]]:
        """Policy and metadata; refuses one that does not fit the car."""
        actor, meta = Actor.load(self.policy_path(number))
        if (actor.obs_dim, actor.action_dim) != (OBS_DIM, ACTION_DIM):
            raise SombrlError(
                f"{self.policy_path(number)} maps {actor.obs_dim} numbers to {actor.action_dim}, and the car needs "
                f"{OBS_DIM} to {ACTION_DIM}: its trainer was given another environment."
            )
        return actor, meta

    def commit(self, number: int, episode: Episode, row: dict[str, Any]) -> None:
        """The episode counts from now on. The row first: a resumed campaign cuts rows back to the episodes."""
        self.folder.truncate(number)
        self.folder.append([{"iteration": number, **row}])
        episode.save(self.episode_path(number))


@contextlib.contextmanager
def _only(folder: RunFolder, refusal: str, patience: float) -> Iterator[None]:
    """Hold a folder's lock, or refuse after so many seconds."""
    deadline = time.monotonic() + patience
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(folder.lock())
                break
            except SombrlError:
                if time.monotonic() >= deadline:
                    raise SombrlError(refusal) from None
                time.sleep(0.05)
        yield


def is_campaign(path: Path) -> bool:
    """Whether a folder says that it is one."""
    manifest = read_json(path / "manifest.json")
    return manifest is not None and manifest.get("kind") == "campaign" and (path / "config.json").is_file()


def refuse_other(path: Path) -> None:
    """Only a new or an empty folder can become a campaign."""
    try:
        if path.exists() and any(path.iterdir()):
            raise SombrlError(f"{path} is not empty and not a campaign: choose another folder.")
    except NotADirectoryError:
        raise SombrlError(f"{path} is a file: choose another folder.") from None
    except OSError as error:
        raise RunFault(f"cannot read {path}: {error.strerror or error}.") from error
