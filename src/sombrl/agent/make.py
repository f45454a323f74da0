"""How agents come about: by the name of an algorithm, by its own constructor, or from a run's folder."""

import dataclasses
from pathlib import Path
from typing import Any

from sombrl.agent.agent import Agent
from sombrl.algorithms import ALGORITHMS
from sombrl.config.json import from_json
from sombrl.config.run import RunConfig
from sombrl.config.suggestions import nearest
from sombrl.errors import SombrlError
from sombrl.storage.run_folder import RunFolder


def load(path: str | Path, env: Any = None, *, fresh: bool = False) -> Agent:
    """The agent of a run folder. `env` is needed only when it was made with an object instead of a name.

    `fresh` takes the configuration alone and leaves the agent untrained.
    """
    folder = RunFolder.open(Path(path))
    data = folder.settings
    if data.get("env_is_object") and env is None:
        raise SombrlError(f"{path} was trained on an environment object: give it again, load(path, env=...).")
    algorithm = data["algorithm"]
    try:
        if algorithm not in ALGORITHMS:
            raise nearest(algorithm, ALGORITHMS, "algorithm")
        config, run_config = from_json(ALGORITHMS[algorithm].config, data["config"]), from_json(RunConfig, data["run"])
        agent = Agent(algorithm, config, run_config, env)
    except SombrlError as error:
        raise SombrlError(f"{folder.path / 'config.json'}: {error}") from error
    return agent if fresh else agent.restore(folder)


def make(algorithm: str, env: Any, *, config: Any = None, **settings: Any) -> Agent:
    """An agent by name. Settings go where they belong: the run (seed, action_repeat, …), the exploration
    (explore, bonus_weight, …), or the algorithm; `gp={"rank": 64}` sets fields of a nested config."""
    if algorithm not in ALGORITHMS:
        raise nearest(algorithm, ALGORITHMS, "algorithm")
    config = ALGORITHMS[algorithm].config() if config is None else config
    run_fields = {field.name for field in dataclasses.fields(RunConfig)}
    explore_fields = {field.name for field in dataclasses.fields(config.explore)}
    own_fields = {field.name for field in dataclasses.fields(config)} - {"explore"}
    for name in settings:
        if name not in run_fields | explore_fields | own_fields:
            raise nearest(name, run_fields | explore_fields | own_fields, "setting", see="help(sombrl.make)")

    def chosen(part: Any, names: set[str]) -> dict[str, Any]:
        given = {name: settings[name] for name in names & set(settings)}
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        return {
            name: dataclasses.replace(getattr(part, name), **value) if isinstance(value, dict) else value
            for name, value in given.items()
        }

    explore = dataclasses.replace(config.explore, **chosen(config.explore, explore_fields))
    own = chosen(config, own_fields)
    run_settings = {name: settings[name] for name in run_fields & set(settings)}
    if isinstance(env, str):
        run_settings["env"] = env
    if isinstance(run_settings.get("env_kwargs"), dict):
        run_settings["env_kwargs"] = tuple(f"{name}={value}" for name, value in run_settings["env_kwargs"].items())
    config = dataclasses.replace(config, explore=explore, **own)
    return Agent(algorithm, config, RunConfig(**run_settings), None if isinstance(env, str) else env)


def MBPO(env: Any, **settings: Any) -> Agent:
    """An ensemble, and a policy that learns from it; see `make` for the settings."""
    return make("mbpo", env, **settings)


def SAC(env: Any, **settings: Any) -> Agent:
    """Soft actor-critic; see `make` for the settings."""
    return make("sac", env, **settings)


def MaxInfoSAC(env: Any, **settings: Any) -> Agent:
    """Soft actor-critic with a bonus for information; see `make` for the settings."""
    return make("maxinfo-sac", env, **settings)


def Dreamer(env: Any, **settings: Any) -> Agent:
    """A latent world model and a policy trained inside it; see `make` for the settings."""
    return make("dreamer", env, **settings)


def GPICEM(env: Any, **settings: Any) -> Agent:
    """GP dynamics planned with iCEM; see `make` for the settings."""
    return make("gp-icem", env, **settings)
