"""What this installation can make, by suite: names from registries, so nothing is constructed."""

import importlib.util
from collections.abc import Iterator

import gymnasium
from gymnasium.envs.registration import EnvSpec

from sombrl.envs.adapters import atari, dmc, playground
from sombrl.envs.registry import WORLDS

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
    suites = [
        ("sombrl", list(WORLDS)),
        ("DeepMind Control; dmc-vision: has the same as pictures", dmc.task_names()),
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
        if _is_ours(spec):
            key = (spec.namespace, spec.name)
            if key not in newest or (spec.version or 0) >= (newest[key].version or 0):
                newest[key] = spec
    for spec in newest.values():
        yield spec.id, _suite(str(spec.entry_point))


def _is_ours(spec: EnvSpec) -> bool:
    if not isinstance(spec.entry_point, str) or spec.namespace in TRIALS or spec.id in REFUSED:
        return False  # what is no text raises: old versions, and other packages' environments
    module = spec.entry_point.partition(":")[0].split(".")
    needed = NEEDS.get(module[2], "gymnasium") if module[:2] == ["gymnasium", "envs"] else module[0]
    return needed not in ELSEWHERE and importlib.util.find_spec(needed) is not None


def _suite(entry_point: str) -> str:
    module = entry_point.partition(":")[0].split(".")
    return GYMNASIUM.get(module[2], "Gymnasium") if module[:2] == ["gymnasium", "envs"] else f"Gymnasium, {module[0]}"
