"""The algorithms by the names of the command line."""

from sombrl.algorithms.base import Algorithm, Parts
from sombrl.algorithms.gp_icem import GP_ICEM, GPICEMConfig

ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in (GP_ICEM,)}

__all__ = ["ALGORITHMS", "Algorithm", "GPICEMConfig", "Parts"]
