"""Policies, replays and results for other programs: NumPy, ONNX, Minari and Parquet."""

from sombrl.export.minari_replay import from_minari, seed_replay, to_minari
from sombrl.export.policy_folder import export_policy

__all__ = ["export_policy", "from_minari", "seed_replay", "to_minari"]
