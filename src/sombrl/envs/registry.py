"""Environments by name: our worlds, the DeepMind Control Suite, Playground, Atari, and what Gymnasium can make."""

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium

from sombrl.config.suggestions import nearest
from sombrl.envs.adapters.atari import FRAME_SKIP, AtariEnvs, find_game, list_games
from sombrl.envs.adapters.atari import PREFIX as ATARI
from sombrl.envs.adapters.dmc import PREFIX as DMC
from sombrl.envs.adapters.dmc import DMCEnvs, check_name, list_tasks, task_names
from sombrl.envs.adapters.dmc_vision import PREFIX as VISION
from sombrl.envs.adapters.factories import KNOWN_TASKS, EnvSource, check_id
from sombrl.envs.adapters.gymnasium import GymnasiumEnvs
from sombrl.envs.adapters.playground import PREFIX as PLAYGROUND
from sombrl.envs.adapters.playground import PlaygroundWorld
from sombrl.envs.adapters.playground import list_tasks as list_playground
from sombrl.envs.adapters.processes import ProcessEnvs
from sombrl.envs.base import ENDLESS, AbstractEnvs, AbstractWorld
from sombrl.envs.deceptive_chain import DeceptiveChain
from sombrl.envs.guards import check_cost, check_count, check_seeds
from sombrl.envs.jax_envs import JaxEnvs
from sombrl.envs.mountain_car import MountainCar
from sombrl.envs.pendulum import MAX_TORQUE, Pendulum
from sombrl.envs.pixels.world import PREFIX as PIXEL
from sombrl.envs.pixels.world import PixelWorld
from sombrl.envs.rc_car import RCCar
from sombrl.envs.wall import Wall
from sombrl.records import SombrlError


@dataclasses.dataclass(frozen=True)
class WorldEntry:
    """A row of the table of our own worlds."""

    make: Callable[..., AbstractWorld]
    action_bound: float  # the physical action is this times the action in [-1, 1]
    description: str


WORLDS = {
    "pendulum": WorldEntry(Pendulum, MAX_TORQUE, "swing-up from hanging; dense or sparse reward; known reward"),
    "mountain-car": WorldEntry(MountainCar, 1.0, "sparse +100 on the hill, never terminates; known reward"),
    "deceptive-chain": WorldEntry(
        DeceptiveChain, 1.0, "a cart; little reward at the start, a large one behind a hill; known reward"
    ),
    "wall": WorldEntry(Wall, 1.0, "a point mass; sparse reward behind a wall; known reward"),
    "rc-car": WorldEntry(RCCar, 1.0, "park a car by a half-turn, with delayed actions; known reward"),
    "pixel:mountain-car": WorldEntry(
        partial(PixelWorld, "mountain-car"), 1.0, "the car in small pictures, 1 on the hill; the reward is learned"
    ),
    "pixel:pendulum": WorldEntry(
        partial(PixelWorld, "pendulum"), MAX_TORQUE, "the swing-up in small pictures, 1 upright; the reward is learned"
    ),
    "pixel:corridor": WorldEntry(
        partial(PixelWorld, "corridor"),
        1.0,
        "a winding corridor in small pictures, 1 at its end; the reward is learned",
    ),
    "pixel:key-door": WorldEntry(
        partial(PixelWorld, "key-door"), 1.0, "rooms, a key and a door in small pictures; the reward is learned"
    ),
    "pixel:wall": WorldEntry(
        partial(PixelWorld, "wall"), 1.0, "the point mass in small pictures, 1 behind the wall; the reward is learned"
    ),
}
"""A new world is a file of its own and a row here."""

PREFIXES = (DMC, VISION, ATARI, PLAYGROUND, PIXEL)
"""What comes before the colon of names that are not modules."""

NEEDS_OPENGL = {f"{DMC}quadruped-escape"}  # its terrain goes through the graphics library, even without pictures


def make_envs(
    name: EnvSource | AbstractWorld,
    seeds: Sequence[int],
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    action_repeat: int | None = None,
    action_cost: float = 0.0,
    episode_length: int | None = None,
    endless: bool = False,
    render: bool = False,
    workers: int = 0,
    restart: bool = False,
) -> AbstractEnvs:
    """One environment per seed.

    `name` is one of ours (`list_envs`), `dmc:domain-task`, `dmc-vision:domain-task`, `playground:Task`, `atari:Game`, a
    Gymnasium id (also `module:Id-v0`), a function that makes a `gymnasium.Env`, a ready one (for one seed), or an
    `AbstractWorld`. `env_kwargs` are passed on to make it; text that reads as a number or a truth value becomes one, as
    it comes from a command line. `action_repeat` frames are one decision (default: 2 for dmc:, dmc-vision: and
    playground:, 4 for atari:, else 1); `action_cost` is K in reward − K‖u‖₂ per frame, u in physical units;
    `episode_length` counts decisions; `endless` environments have no time limit (for the non-episodic setting).
    `workers` processes step host simulators in parallel, bit-identically; 0 steps them in turn, in this process. With
    `restart` a worker that dies is started again and its episodes are cut short, instead of ending the run.
    """
    seeds = check_seeds(seeds)
    kwargs = read_kwargs(env_kwargs)
    if action_repeat is None:
        action_repeat = _usual_repeat(name)
    repeat, cost = check_count(action_repeat, "action_repeat"), check_cost(action_cost)
    length = None if episode_length is None else check_count(episode_length, "episode_length")
    length = ENDLESS if endless else length
    if workers != 0:
        workers = check_count(workers, "env_workers")
        if stepped_by_jax(name):
            raise SombrlError(
                "Worlds in JAX are stepped by JAX; worker processes are for simulators: use env_workers 0."
            )
        if isinstance(name, gymnasium.Env):
            raise SombrlError("A ready environment cannot move to a worker process; use env_workers 0.")
    if stepped_by_jax(name):
        return JaxEnvs(
            make_world(name, kwargs),
            seeds,
            name=name if isinstance(name, str) else type(name).__name__,
            action_repeat=repeat,
            episode_length=length,
            action_cost=cost,
            action_bound=WORLDS[name].action_bound if isinstance(name, str) and name in WORLDS else 1.0,
        )
    options: dict[str, Any] = {
        "env_kwargs": kwargs,
        "action_repeat": repeat,
        "action_cost": cost,
        "episode_length": length,
        "endless": endless,
        "render": render,
    }
    adapter: Callable[..., AbstractEnvs] = GymnasiumEnvs
    environ: dict[str, str] = {}
    if isinstance(name, str) and name.startswith((DMC, VISION)):
        check_name(name)
        adapter = DMCEnvs
        if name.startswith(DMC) and not render and name not in NEEDS_OPENGL:
            environ["MUJOCO_GL"] = "disable"
    elif isinstance(name, str) and name.startswith(ATARI):
        find_game(name)
        adapter = AtariEnvs
    elif isinstance(name, str) and name.startswith(PIXEL):
        raise nearest(name, WORLDS, "environment")
    elif isinstance(name, str):
        check_id(name, also=lambda: [*WORLDS, *task_names()])
    if workers:
        return ProcessEnvs(adapter, name, seeds, workers=workers, environ=environ, restart=restart, **options)
    return adapter(name, seeds, **options)


def stepped_by_jax(name: EnvSource | AbstractWorld) -> bool:
    """Whether it is a world in JAX; the others are simulators on the host, which worker processes can step."""
    if isinstance(name, str):
        return name in WORLDS or name.startswith(PLAYGROUND)
    return isinstance(name, AbstractWorld)


def _usual_repeat(name: Any) -> int:
    """How many frames published results repeat an action for."""
    if isinstance(name, str) and name.startswith((DMC, VISION, PLAYGROUND)):
        return 2
    return FRAME_SKIP if isinstance(name, str) and name.startswith(ATARI) else 1


def make_world(name: str | AbstractWorld, kwargs: Mapping[str, Any]) -> AbstractWorld:
    """A world in JAX with its fields set, or a ready one."""
    if isinstance(name, AbstractWorld):
        if kwargs:
            raise SombrlError("env_kwargs cannot change a ready world; set its fields instead.")
        return name
    if name.startswith(PLAYGROUND):
        return PlaygroundWorld(name, **kwargs)
    make = WORLDS[name].make
    allowed = inspect.signature(make).parameters
    unknown = [key for key in kwargs if key not in allowed]
    if unknown:
        options = ", ".join(f"{key}={p.default!r}" for key, p in allowed.items())
        raise SombrlError(f"{name} has no option {unknown[0]!r}; the options and their defaults are {options}.")
    return make(**kwargs)


def read_kwargs(kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of an environment, as it is given them."""
    return {key: _parse(value) for key, value in (kwargs or {}).items()}


def _parse(value: Any) -> Any:
    """Text that reads as a number or a truth value becomes one."""
    if not isinstance(value, str):
        return value
    if value in ("True", "False"):
        return value == "True"
    try:
        return json.loads(value)
    except ValueError:
        return value


def list_envs() -> list[tuple[str, str]]:
    """(name, description) of what `make_envs` takes."""
    rows = [(name, f"{world.description}; {_options(world)}") for name, world in WORLDS.items()]
    rows += [(name, "Gymnasium's own; known reward") for name in KNOWN_TASKS]
    rows += list_tasks()
    rows += list_playground()
    rows += list_games()
    spaces = "Box, Discrete and Dict observations, Box and Discrete actions"
    rows.append(("<Gymnasium id>", f"any environment with {spaces}, also module:Id-v0; the reward is learned"))
    return rows


def _options(world: WorldEntry) -> str:
    parameters = inspect.signature(world.make).parameters
    return "options " + ", ".join(f"{key}={p.default!r}" for key, p in parameters.items())
