"""The algorithms by the names of the command line."""

from sombrl.algorithms.base import Algorithm, Parts
from sombrl.algorithms.dreamer import DREAMER
from sombrl.algorithms.gp_icem import GP_ICEM, GPICEMConfig
from sombrl.algorithms.mbpo import MBPO, MBPOConfig
from sombrl.algorithms.model_free import MAXINFO_SAC, SAC_ALGORITHM
from sombrl.algorithms.sim_fsvgd import SIM_FSVGD, SimFSVGDConfig
from sombrl.dreamer.config import DreamerConfig

ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm for algorithm in (GP_ICEM, MBPO, SAC_ALGORITHM, MAXINFO_SAC, SIM_FSVGD, DREAMER)
}

__all__ = ["ALGORITHMS", "Algorithm", "DreamerConfig", "GPICEMConfig", "MBPOConfig", "Parts", "SimFSVGDConfig"]
