"""Where the environments of a run come from: a name, a function that makes them, or a ready one."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from sombrl.config.run import RunConfig
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.registry import make_envs


@dataclasses.dataclass(frozen=True)
class EnvMaker:
    """Makes environments for any seeds, all of the same kind."""

    env: Any
    """As `make_envs` takes it."""
    is_object: bool
    """Whether `env` is the user's own object instead of a name. All that is made shares a ready environment."""
    env_kwargs: Mapping[str, str]
    action_repeat: int | None
    action_cost: float
    episode_length: int | None

    @classmethod
    def of(cls, run: RunConfig, env: Any = None) -> "EnvMaker":
        """For a run, and an object if there is one."""
        return cls(
            env=run.env if env is None else env,
            is_object=env is not None,
            env_kwargs=run.env_options,
            action_repeat=run.action_repeat,
            action_cost=run.action_cost,
            episode_length=run.episode_length,
        )

    def make(
        self,
        seeds: Sequence[int],
        *,
        render: bool = False,
        endless: bool = False,
        workers: int = 0,
        restart: bool = False,
    ) -> AbstractEnvs:
        """One environment per seed."""
        return make_envs(
            self.env,
            seeds,
            env_kwargs=self.env_kwargs,
            action_repeat=self.action_repeat,
            action_cost=self.action_cost,
            episode_length=self.episode_length,
            render=render,
            endless=endless,
            workers=workers,
            restart=restart,
        )

    def same_simulator(self, one: AbstractEnvs, other: AbstractEnvs) -> bool:
        """Whether moving `one` moves `other`: both wrap the same ready environment."""
        if not self.is_object:
            return False
        ours, theirs = ([env.unwrapped for env in getattr(envs, "envs", [])] for envs in (one, other))
        return any(a is b for a in ours for b in theirs)
