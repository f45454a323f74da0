"""A run whose seeds are trained by several processes: its parts, each an ordinary run, as a worker finds them."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sombrl.algorithms import ALGORITHMS
from sombrl.config.json import from_json
from sombrl.config.run import RunConfig
from sombrl.envs.trust import NO_WORD, Word, require_word
from sombrl.records import RunFault, SombrlError
from sombrl.runs import train as single
from sombrl.runs.work import AbstractWork, Attempts
from sombrl.storage import checkpoint
from sombrl.storage.run_folder import RunFolder
from sombrl.sweep.places import AbstractPlace
from sombrl.sweep.side_by_side import Said


def split(run_config: RunConfig, parts: int) -> dict[str, RunConfig]:
    """The seeds in groups as even as can be, by the subfolder of each."""
    found = {}
    for group in np.array_split(run_config.seed_list, parts):
        first, last = int(group[0]), int(group[-1])
        name = f"seed-{first}" if first == last else f"seeds-{first}-{last}"
        workers = -(-run_config.env_workers // parts)
        found[f"parts/{name}"] = dataclasses.replace(run_config, seed=first, seeds=len(group), env_workers=workers)
    return found


class Part(AbstractWork):
    """One part of a run, which is to be trained up to iteration `until`."""

    def __init__(self, folder: RunFolder, logs: Path, until: int):
        self.folder, self.until = folder, until
        self.attempts = Attempts(logs / f"{folder.path.name}.jsonl")  # a run begins in an empty folder

    @property
    def finished(self) -> bool:
        """Whether its last checkpoint is there, before which its metrics were written."""
        return (checkpoint.newest(self.folder.checkpoints) or 0) >= self.until

    @property
    def in_use(self) -> bool:
        """Whether a process trains it at this moment."""
        return self.folder.in_use

    @property
    def seconds(self) -> float:
        """Nobody asks for it."""
        return 0.0


@dataclasses.dataclass(frozen=True)
class PartsPlace(AbstractPlace):
    """The parts of a run."""

    path: Path
    until: int
    episodes: int | None = None
    """Of `sombrl resume --episodes`."""
    checkpoint_every: int | None = None
    films: bool = True
    word: Word = NO_WORD
    """What the user has said about the environment that the run names."""

    final: ClassVar[tuple[type[Exception], ...]] = (SombrlError, RunFault)

    @property
    def root(self) -> Path:
        """The run's folder."""
        return self.path

    def folders(self) -> dict[str, Part]:
        """The parts by the names of their folders, in the order of their seeds."""
        parts = RunFolder.open(self.path).parts
        return {part.path.name: Part(part, self.path / "logs", self.until) for part in parts}

    def run(self, names: Sequence[str], command: Sequence[str]) -> None:
        """Train parts from where they are; the first one makes films, as one process would of the first seed."""
        folder, parts, said = RunFolder.open(self.path), self.folders(), Said(self.root / "logs")
        for name in names:
            films = self.films and name == next(iter(parts))
            with said.by(name):
                try:
                    self._train(folder, parts[name].folder.path, list(command), films)
                except (SombrlError, RunFault) as stop:
                    cause = stop.__cause__  # without what the stop says of the part's own folder
                    raise (cause if isinstance(cause, SombrlError | RunFault) else stop) from None

    def _train(self, folder: RunFolder, path: Path, command: list[str], films: bool) -> None:
        if (path / "manifest.json").is_file():
            single.resume(
                path,
                episodes=self.episodes,
                checkpoint_every=self.checkpoint_every,
                tensorboard=False,
                films=films,
                word=self.word,
            )
            return
        settings = folder.settings
        run_config = from_json(RunConfig, settings["run"])
        require_word(run_config, self.word)
        run_configs = split(run_config, len(folder.parts))
        single.train(
            settings["algorithm"],
            from_json(ALGORITHMS[settings["algorithm"]].config, settings["config"]),
            run_configs[f"parts/{path.name}"],
            path,
            command=command,
            checkpoint_every=self.checkpoint_every,
            tensorboard=False,
            films=films,
        )

    def to_json(self) -> dict[str, Any]:
        """See `AbstractPlace`."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        own |= {"path": str(self.path.absolute()), "word": self.word.to_json()}
        return {"kind": "sombrl.sweep.parts:PartsPlace", **own}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "PartsPlace":
        """See `AbstractPlace`."""
        own = {field.name: data[field.name] for field in dataclasses.fields(cls)}
        return cls(**own | {"path": Path(data["path"]), "word": Word.from_json(data["word"])})
