"""The runs of the demo: one per strategy, side by side where there are cores for it, and what happened in them."""

import dataclasses
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from sombrl.algorithms.gp_icem import GPICEMConfig
from sombrl.config.json import from_json, to_json
from sombrl.config.run import RunConfig
from sombrl.demo.story import EVALUATION_EPISODES, Story
from sombrl.errors import RunFault, SombrlError
from sombrl.runs.train import train
from sombrl.runs.work import AbstractWork, Attempts
from sombrl.storage.merged_metrics import MergedMetrics
from sombrl.storage.run_folder import RunFolder
from sombrl.sweep.places import AbstractPlace
from sombrl.sweep.side_by_side import Said, run_side_by_side, summary
from sombrl.training.progress import Progress

STORY = "story.npz"
TRAINING = ".training"
"""Where processes say in the demo's folder what they do."""


def train_strategies(
    out: Path, configs: Sequence[GPICEMConfig], run_config: RunConfig, command: list[str], jobs: int
) -> list[Story]:
    """An ordinary run per strategy in a folder of its name, and what happened in it; side by side in several `jobs`."""
    place = Strategies(out, tuple(configs), run_config)
    if jobs > 1:
        _train_side_by_side(place, command)
    else:
        for name in place.configs:
            place.train(name, command)
            print()
    return [Story.load(name, out / name / STORY, RunFolder.open(out / name).rows()) for name in place.configs]


def _train_side_by_side(place: "Strategies", command: list[str]) -> None:
    names, seeds = list(place.configs), place.run_config.seeds
    merged = MergedMetrics([RunFolder(place.out / name) for name in names], [seeds] * len(names))
    shown = Progress(place.run_config.episodes, f"gp-icem · {place.run_config.env} · {' and '.join(names)}", seeds)

    def look(going: bool) -> None:
        for iteration in merged.new() if going else ():
            shown.iteration(summary(iteration))

    run_side_by_side(place, command, shown, look, saved=lambda: "run the demo again")
    print()


class Strategy(AbstractWork):
    """The run of one strategy."""

    def __init__(self, path: Path, logs: Path):
        self.path, self.attempts = path, Attempts(logs / f"{path.name}.jsonl")

    @property
    def finished(self) -> bool:
        """Whether its story is there, which is written last."""
        return (self.path / STORY).is_file()

    @property
    def in_use(self) -> bool:
        """Whether a process trains it at this moment."""
        return RunFolder(self.path).in_use

    @property
    def seconds(self) -> float:
        """Its story has them."""
        return 0.0


@dataclasses.dataclass(frozen=True)
class Strategies(AbstractPlace):
    """The runs of all strategies, as a worker finds them."""

    out: Path
    each: tuple[GPICEMConfig, ...]
    run_config: RunConfig

    final: ClassVar[tuple[type[Exception], ...]] = (SombrlError, RunFault)

    @property
    def configs(self) -> dict[str, GPICEMConfig]:
        """By the name of the strategy."""
        return {config.explore.explore: config for config in self.each}

    @property
    def root(self) -> Path:
        """Where logs go."""
        return self.out / TRAINING

    def folders(self) -> dict[str, Strategy]:
        """A run per strategy."""
        return {name: Strategy(self.out / name, self.root / "logs") for name in self.configs}

    def run(self, names: Sequence[str], command: Sequence[str]) -> None:
        """Train strategies in a worker's process."""
        said = Said(self.root / "logs")
        for name in names:
            with said.by(name):
                self.train(name, command)

    def train(self, name: str, command: Sequence[str]) -> None:
        """Train a strategy and keep its story."""
        if (self.out / name / "manifest.json").is_file():  # its process was killed: it starts over
            with RunFolder(self.out / name).lock():
                shutil.rmtree(self.out / name)
        story, start = Story(name), time.perf_counter()
        agent = train(
            *("gp-icem", self.configs[name], self.run_config, self.out / name),
            command=list(command),
            tensorboard=False,
            hook=story.watch,
        )
        story.seconds = time.perf_counter() - start
        story.evaluated = agent.evaluate(EVALUATION_EPISODES)
        story.save(self.out / name / STORY)

    def to_json(self) -> dict[str, Any]:
        """See `AbstractPlace`."""
        return {
            "kind": "sombrl.demo.training:Strategies",
            "out": str(self.out.absolute()),
            "configs": [to_json(config) for config in self.each],
            "run": to_json(self.run_config),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Strategies":
        """See `AbstractPlace`."""
        configs = tuple(from_json(GPICEMConfig, config) for config in data["configs"])
        return cls(Path(data["out"]), configs, from_json(RunConfig, data["run"]))
