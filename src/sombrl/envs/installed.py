"""What this installation can make, by suite: names from registries, so nothing is constructed."""

import importlib.util
from collections.abc import Iterator

import gymnasium
from gymnasium.envs.registration import EnvSpec

from sombrl.envs.adapters import atari, dmc, playground
from sombrl.envs.registry import WORLDS

OWN = ["gymnasium", "envs"]  # the modules of Gymnasium's own environments
NEEDS = {"mujoco": "mujoco", "box2d": "Box2D"}  # what some of Gymnasium's own import
TRIALS = ("phys2d", "tabular")  # namespaces of Gymnasium's own
ELSEWHERE = ("ale_py",)  # what atari: has
REFUSED = ("Blackjack-v1",)  # observations are a Tuple
GYMNASIUM = {
    "classic_control": "Gymnasium, classic control",
    "box2d": "Gymnasium, Box2D",
    "mujoco": "Gymnasium, MuJoCo",
    "toy_text": "Gymnasium, toy text (dreamer)",
}


def installed() -> list[tuple[str, str]]:
    """(name, suite) of every environment that can be made here, a suite after the other."""
    control = [name for name in dmc.task_names() if not name.startswith(f"{dmc.PREFIX}lqr-")]  # without bounds: refused
    suites = [
        ("sombrl", list(WORLDS)),
        ("DeepMind Control; dmc-vision: has the same as pictures", control),
        ("MuJoCo Playground", playground.task_names()),
        ("Atari (dreamer)", atari.game_names()),
    ]
    rows = [(name, suite) for suite, names in suites for name in names]
    order = [*GYMNASIUM.values()]
    found = sorted(_gymnasium(), key=lambda row: order.index(row[1]) if row[1] in order else len(order))
    return [*rows, *found]


def _gymnasium() -> Iterator[tuple[str, str]]:
    """The ids of Gymnasium's registry whose modules are there; of several versions of an environment the newest."""
    newest: dict[tuple[str | None, str], EnvSpec] = {}
    for spec in gymnasium.registry.values():
        if spec.namespace not in TRIALS and spec.id not in REFUSED and _is_there(_module(spec)):
            key = (spec.namespace, spec.name)
            if key not in newest or (spec.version or 0) >= (newest[key].version or 0):
                newest[key] = spec
    for spec in newest.values():
        module = _module(spec)
        yield spec.id, GYMNASIUM.get(module[2], "Gymnasium") if module[:2] == OWN else f"Gymnasium, {module[0]}"


def _module(spec: EnvSpec) -> list[str]:
    """Where an environment is from: gymnasium.envs.mujoco.hopper_v5, as its parts."""
    entry = spec.entry_point
    return (entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")).split(".")


def _is_there(module: list[str]) -> bool:
    """Whether what an environment imports is installed."""
    if module[:2] == OWN:  # the functions among Gymnasium's raise: older versions
        return len(module) > 2 and importlib.util.find_spec(NEEDS.get(module[2], "gymnasium")) is not None
    return module[0] not in ("", *ELSEWHERE) and importlib.util.find_spec(module[0]) is not None
