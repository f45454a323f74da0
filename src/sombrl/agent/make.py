"""How agents come about: by the name of an algorithm, by its own constructor, or from a run's folder."""

import dataclasses
import functools
import os
import pathlib
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec

from sombrl.agent.agent import Agent
from sombrl.algorithms import ALGORITHMS
from sombrl.algorithms.settings import configured, fields_of, preset_values
from sombrl.config.check import shown
from sombrl.config.fields import Path, changed
from sombrl.config.hints import unknown
from sombrl.config.json import from_json
from sombrl.config.kinds import Kind, from_plain, kinds_of
from sombrl.config.run import RunConfig
from sombrl.config.suggestions import nearest
from sombrl.envs.trust import Word, require_word
from sombrl.errors import SombrlError
from sombrl.storage.run_folder import RunFolder

Settings = ParamSpec("Settings")


def load(path: str | pathlib.Path, env: Any = None, *, trust: bool = False, fresh: bool = False) -> Agent:
    """The agent of a run folder. Reading it runs no code of the folder's choice.

    `env` is needed when the agent was made with an object instead of a name, and when the name is `module:Id`: that
    imports a module, which is done only where you name it again, or `trust` the folder. `fresh` takes the configuration
    alone and leaves the agent untrained.
    """
    return load_with(Word.of(trust, env if isinstance(env, str) else None), path, env, fresh=fresh)


def load_with(word: Word, path: str | pathlib.Path, env: Any = None, *, fresh: bool = False) -> Agent:
    """`load`, with the user's word about code that the folder names."""
    if not isinstance(path, str | os.PathLike):
        raise SombrlError(f"load needs the path of a run's folder, not {shown(path)}.")
    folder = RunFolder.open(pathlib.Path(path))
    data = folder.settings
    if data.get("env_is_object") and env is None:
        raise SombrlError(f"{path} was trained on an environment object: give it again, load(path, env=...).")
    if isinstance(env, str) and not data.get("env_is_object"):
        if env != data["run"]["env"]:
            raise SombrlError(f"{path} was trained on {data['run']['env']}, not on {env}: leave out --env.")
        env = None
    algorithm = data["algorithm"]
    try:
        if algorithm not in ALGORITHMS:
            raise nearest(algorithm, ALGORITHMS, "algorithm")
        config: Any = from_json(ALGORITHMS[algorithm].config, data["config"])
        run_config = from_json(RunConfig, data["run"])
        if env is None:
            require_word(run_config, word)
        agent = Agent(algorithm, config, run_config, env, word=word)
    except SombrlError as error:
        raise SombrlError(f"{folder.path / 'config.json'}: {error}") from error
    return agent if fresh else agent.restore(folder, bound=True)


def make(algorithm: str, env: Any, *, preset: str | None = None, config: Any = None, **settings: Any) -> Agent:
    """An agent by name. Settings go where they belong: the run (seed, action_repeat, …), the exploration
    (explore, bonus_weight, …), or the algorithm; `gp={"rank": 64}` sets fields of a nested config. `preset` sets
    several at once (`sombrl list presets`), and the others override it."""
    if algorithm not in ALGORITHMS:
        raise nearest(algorithm, ALGORITHMS, "algorithm")
    if env is None:
        raise SombrlError(
            'an agent needs an environment: a name such as "Pendulum-v1", a gymnasium.Env, or a function that makes '
            "one."
        )
    row = ALGORITHMS[algorithm]
    kind = row.config
    if config is not None and not isinstance(config, kind):
        raise SombrlError(f"the config of {algorithm} must be a {kind.__name__}, not {shown(config)}.")
    if config is not None and preset is not None:
        raise SombrlError("config= has every number already: leave preset= out, or leave config= out.")
    run_config, settled = configured(algorithm, preset_values(algorithm, preset), config)
    if isinstance(env, str):
        settings["env"] = env
    if isinstance(settings.get("env_kwargs"), Mapping):
        settings["env_kwargs"] = tuple(f"{name}={value}" for name, value in settings["env_kwargs"].items())
    values = _values(algorithm, settled, settings)
    row.refuse_names([*settings, *(".".join(path[1:]) for path in values)])
    row.refuse_values({path[-1]: value for path, value in values.items() if path[1:-1] in ((), ("explore",))})
    run = {path[1:]: value for path, value in values.items() if path[0] == "run"}
    own = {path[1:]: value for path, value in values.items() if path[0] == "config"}
    return Agent(algorithm, changed(settled, own), changed(run_config, run), None if isinstance(env, str) else env)


def constructs(algorithm: str) -> Callable[[Callable[Settings, Agent]], Callable[Settings, Agent]]:
    """Make of a function, of which only the signature counts, the constructor of an algorithm's agents."""

    def decorate(signature: Callable[Settings, Agent]) -> Callable[Settings, Agent]:
        @functools.wraps(signature)
        def construct(*env: Any, **settings: Any) -> Agent:
            if len(env) > 1:
                raise SombrlError(
                    f"{signature.__name__} takes the environment alone by position, and all settings by name, as in "
                    f'{signature.__name__}("Pendulum-v1", seed=0).'
                )
            return make(algorithm, env[0] if env else settings.pop("env", None), **settings)

        return typing.cast(Callable[Settings, Agent], construct)

    return decorate


def _values(algorithm: str, config: Any, settings: Mapping[str, Any]) -> dict[Path, Any]:
    """Where each setting goes: ("run", "seed"), ("config", "gp", "rank")."""
    places: dict[str, tuple[Path, type]] = {name: (("run", name), RunConfig) for name in kinds_of(RunConfig)}
    places |= {name: (("config", name), type(config)) for name in kinds_of(type(config)) if name != "explore"}
    explore = type(config.explore)
    places |= {name: (("config", "explore", name), explore) for name in kinds_of(explore)}
    found: dict[Path, Any] = {}
    for name, value in settings.items():
        if name not in places:
            lacks = ALGORITHMS[algorithm].lacks
            known = [one for one in fields_of(algorithm) if one not in lacks]
            raise unknown(name, known, "setting", _as_argument, "help(sombrl.make)")
        path, owner = places[name]
        found |= dict(_inside(kinds_of(owner)[name], path, value, name))
    return found


def _inside(kind: Kind, path: Path, value: Any, name: str) -> Iterator[tuple[Path, Any]]:
    """A value by its path; those of a nested configuration that is given as a dict one by one."""
    if not (isinstance(value, Mapping) and dataclasses.is_dataclass(kind.base)):
        yield path, from_plain(kind, value) if isinstance(value, list) else value
        return
    kinds = kinds_of(kind.base)
    for inner, one in value.items():
        if inner not in kinds:
            known = [f"{name}.{known}" for known in kinds]
            raise unknown(f"{name}.{inner}", known, "setting", _as_argument, "help(sombrl.make)")
        yield from _inside(kinds[inner], (*path, inner), one, f"{name}.{inner}")


def _as_argument(name: str) -> str:
    """A field as one writes it in Python: rank of gp as gp={"rank": ...}."""
    part, dot, inner = name.partition(".")
    return f'{part}={{"{inner}": ...}}' if dot else f'"{part}"'
