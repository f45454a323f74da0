"""The module names of sombrl 0.1, which keep working for one release: `import sombrl.loop` finds its new room."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from types import ModuleType
from typing import Any

MOVED = {
    "sombrl.checkpoint": "sombrl.storage.checkpoint",
    "sombrl.controllers.dreamer_actor_critic": "sombrl.dreamer.actor_critic",
    "sombrl.data": "sombrl.paper.recordings",
    "sombrl.diagnostics": "sombrl.training.diagnostics",
    "sombrl.dynamics.rssm": "sombrl.dreamer.rssm",
    "sombrl.envs.adapters.boxes": "sombrl.envs.adapters.spaces",
    "sombrl.envs.adapters.making": "sombrl.envs.adapters.factories",
    "sombrl.envs.rc_car_prior": "sombrl.dynamics.rc_car_prior",
    "sombrl.evaluation": "sombrl.runs.evaluate",
    "sombrl.experiments.cell_folder": "sombrl.runs.cell_folder",
    "sombrl.experiments": "sombrl.paper.experiments",
    "sombrl.extras": "sombrl.optional",
    "sombrl.hardware.agent_trainer": "sombrl.hardware.trainers",
    "sombrl.hardware.backends": "sombrl.hardware.registry",
    "sombrl.hardware.car": "sombrl.hardware.sim_backend",
    "sombrl.hardware.clocks": "sombrl.hardware.backend",
    "sombrl.hardware.event_log": "sombrl.hardware.files",
    "sombrl.hardware.learner_client": "sombrl.hardware.learner",
    "sombrl.hardware.log_check": "sombrl.hardware.episode",
    "sombrl.hardware.replay_backend": "sombrl.hardware.episode",
    "sombrl.hardware.reset": "sombrl.hardware.policy",
    "sombrl.lab": "sombrl.paper.lab",
    "sombrl.loop": "sombrl.training.episodic",
    "sombrl.names": "sombrl.config.suggestions",
    "sombrl.numerics": "sombrl.numerics",
    "sombrl.online": "sombrl.training.online",
    "sombrl.plots": "sombrl.runs.plots",
    "sombrl.progress": "sombrl.training.progress",
    "sombrl.results": "sombrl.storage.results",
    "sombrl.rollout": "sombrl.controllers.rollout",
    "sombrl.signals": "sombrl.runs.signals",
    "sombrl.sinks": "sombrl.runs.sinks",
    "sombrl.starts": "sombrl.controllers.initial_states",
    "sombrl.sweep.fields": "sombrl.algorithms.settings",
    "sombrl.together": "sombrl.training.lockstep",
    "sombrl.train": "sombrl.runs.train",
    "sombrl.video": "sombrl.runs.video",
}
"""Old name: new name. `sombrl.config`, `sombrl.networks` and `sombrl.runs` are rooms now and export what they had."""


class MovedFinder(importlib.abc.MetaPathFinder):
    """Finds an old module name, or a module inside an old package, under its new name."""

    def find_spec(
        self, name: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for old names alone; this finder is asked last, so what exists is never hidden."""
        new = new_name(name)
        return None if new is None else importlib.util.spec_from_loader(name, MovedLoader(new), is_package=True)


class MovedLoader(importlib.abc.Loader):
    """Gives the module itself, not a copy, so that classes and patches are the same under both names."""

    def __init__(self, new: str):
        self.new = new

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The module under its new name, with one line that names it."""
        warnings.warn(f"{spec.name} is now {self.new}; the old name works until sombrl 0.2.", FutureWarning, 2)
        module = importlib.import_module(self.new)
        self.own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run, it is loaded already; only its own spec, which the import has replaced, is put back."""
        module.__spec__ = self.own_spec


def new_name(name: str) -> str | None:
    """Where a module of sombrl 0.1 is now; None for names that did not change."""
    for old, new in MOVED.items():
        if name == old or name.startswith(old + "."):
            return new + name[len(old) :]
    return None


def install() -> None:
    """Make the old names importable."""
    if not any(isinstance(finder, MovedFinder) for finder in sys.meta_path):
        sys.meta_path.append(MovedFinder())
