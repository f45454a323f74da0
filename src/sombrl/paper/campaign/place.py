"""The cells of a campaign as one place: for `sombrl status`, which finds it in the folder's driver.json."""

import dataclasses
from pathlib import Path
from typing import Any

from sombrl.paper.campaign.spec import Campaign
from sombrl.records import SombrlError
from sombrl.runs.cell_folder import CellFolder
from sombrl.sweep.places import AbstractCells, ExperimentPlace

RUNS = "runs"
"""In a campaign's folder: the cells of its experiments."""


@dataclasses.dataclass(frozen=True)
class CampaignPlace(AbstractCells):
    """Cells of several experiments, which are trained in the places of these."""

    path: Path
    parts: tuple[tuple[ExperimentPlace, tuple[str, ...]], ...]
    """An experiment and the names of its cells."""

    @classmethod
    def of(cls, campaign: Campaign, path: Path) -> "CampaignPlace":
        """The cells of a campaign in a folder."""
        return cls(path, tuple((task.place(path / RUNS), task.cells) for task in campaign.tasks))

    @property
    def root(self) -> Path:
        """The campaign's folder."""
        return self.path

    @property
    def shared(self) -> Path | None:
        """The cells of all its experiments."""
        return self.path / RUNS

    def at(self, root: Path) -> "CampaignPlace":
        """See `AbstractCells`."""
        moved = ((dataclasses.replace(place, runs=root / RUNS), names) for place, names in self.parts)
        return CampaignPlace(root, tuple(moved))

    def folders(self) -> dict[str, CellFolder]:
        """Every cell by experiment and name, the first one first."""
        of = {place.root: place.folders() for place, _ in self.parts}
        return {f"{place.root.name}/{name}": of[place.root][name] for place, names in self.parts for name in names}

    def to_json(self) -> dict[str, Any]:
        """See `AbstractPlace`."""
        parts = [[place.to_json(), list(names)] for place, names in self.parts]
        return {"kind": "sombrl.paper.campaign.place:CampaignPlace", "path": str(self.path.absolute()), "parts": parts}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "CampaignPlace":
        """See `AbstractPlace`."""
        parts = tuple((ExperimentPlace.from_json(place), tuple(map(str, names))) for place, names in data["parts"])
        found = cls(Path(data["path"]), parts)
        for place, names in parts:
            if unknown := set(names) - set(place.folders()):
                raise SombrlError(f"{place.name} has no cell {min(unknown)}: run the campaign once with this sombrl.")
        return found
