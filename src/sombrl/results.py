"""Metrics as one long table for the results/ folder: a row per run, seed, iteration and metric."""

import csv
import io
from pathlib import Path

from sombrl.checkpoint import write_synced
from sombrl.records import RunFault, SombrlError
from sombrl.runs import RunFolder

COLUMNS = ("experiment", "method", "env", "setting", "seed", "metric", "env_frames", "decisions", "value")
METRICS = (
    "rollout/ep_rew_mean",
    "rollout/average_reward",
    "explore/mean_std",
    "explore/bonus_share",
    "model/rmse",
    "model/coverage",
)


def export_runs(runs: list[Path], out: Path, experiment: str) -> Path:
    """Write the metrics of finished or running runs as CSV; refuses to overwrite."""
    if out.exists():
        raise SombrlError(f"{out} is there already: delete it or choose another --out.")
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for path in runs:
        folder = RunFolder.open(path)
        config, rows = folder.config, folder.rows()
        if not rows:
            raise SombrlError(f"{path} has no metrics yet: train it first.")
        method = f"{config['algorithm']}/{config['config']['explore']['explore']}"
        env, setting = config["run"]["env"], config["run"].get("setting", "finite-horizon")
        for row in rows:
            where = (experiment, method, env, setting, row["seed"])
            counts = (row["env_frames"], row["decisions"])
            table.writerows((*where, metric, *counts, row[metric]) for metric in METRICS if metric in row)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_synced(out, text.getvalue().encode())
    except OSError as error:
        raise RunFault(f"cannot write {out}: {error.strerror or error}.") from error
    return out
