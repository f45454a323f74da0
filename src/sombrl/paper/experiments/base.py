"""What an experiment of the paper is made of, under one name."""

from sombrl.runs.cell import Cell, Evaluation, FunctionCell, TrainCell, recorded_as
from sombrl.runs.experiment import SCALES, Experiment, UserData
from sombrl.runs.headlines import Headline

__all__ = [
    "SCALES",
    "Cell",
    "Evaluation",
    "Experiment",
    "FunctionCell",
    "Headline",
    "TrainCell",
    "UserData",
    "recorded_as",
]
