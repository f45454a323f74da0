"""Every kind of run that can be killed, as small as it can be."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sombrl.hardware.campaign import Campaign
from sombrl.paper.experiments.rccar import SIZES
from sombrl.storage import checkpoint
from sombrl.storage.run_folder import RunFolder
from tests.dreamer.test_kill import FLAGS as DREAMER
from tests.hardware.test_campaign import contents
from tests.kills.killing import Mode
from tests.small import SMALL_FLAGS, reproducible_rows
from tests.sweep import tiny

SOMBRL = ["-m", "sombrl"]


def run_result(folder: Path) -> Any:
    """The metrics without times, and the arrays of the last checkpoint, of a run or of each of its parts."""
    last = []
    for part in RunFolder.open(folder).parts or [RunFolder.open(folder)]:
        newest = checkpoint.available(part.checkpoints)[0]
        last.append(json.loads((newest / "manifest.json").read_text())["arrays"])  # each with its checksum
    return reproducible_rows(folder), last


def training(*words: str, jobs: int = 1) -> Mode:
    """`sombrl train`, then `sombrl resume`."""
    own = [*words, "--jobs", str(jobs), "--no-tensorboard"]
    return Mode(
        begin=lambda folder: [*SOMBRL, "train", *own, "--out", str(folder / "run")],
        again=lambda folder: [*SOMBRL, "resume", str(folder / "run"), "--no-tensorboard"],
        begun=lambda folder: (folder / "run").exists(),
        result=lambda folder: run_result(folder / "run"),
    )


def repeated(words: Any, result: Any) -> Mode:
    """The same command again."""
    return Mode(begin=words, again=words, begun=lambda folder: True, result=result)


def sweep_words(folder: Path) -> list[str]:
    """Two cells of two seeds each, at once."""
    spec = folder.parent / "tiny.toml"
    if not spec.exists():
        spec.write_text(tiny.SPEC)
    return [*SOMBRL, "sweep", str(spec), tiny.LEARNING, "episodes=5", "--out", str(folder / "sweep"), "--workers", "2"]


def sweep_result(folder: Path) -> Any:
    """The table, and the metrics of every cell."""
    cells = tiny.cells(folder / "sweep")
    return (folder / "sweep" / "results.csv").read_bytes(), [run_result(cell / "run") for cell in cells]


def campaign_result(folder: Path) -> Any:
    """Every episode, policy and metric."""
    as_bytes = lambda leaf: leaf.tobytes() if isinstance(leaf, np.ndarray) else leaf  # noqa: E731
    return jax.tree.map(as_bytes, contents(Campaign(folder)))


def experiment_words(folder: Path) -> list[str]:
    """The smallest experiment."""
    places = ["--out", str(folder / "results"), "--runs", str(folder / "runs")]
    return ["-m", "tests.paper.experiments.toy", *places]


def _tiny(**parts: Any) -> list[str]:
    """Settings as options."""
    found = []
    for part, fields in parts.items():
        for name, value in fields.items():
            values = value if isinstance(value, tuple) else (value,)
            found += [f"--{part}.{name.replace('_', '-')}", *map(str, values)]
    return found


NETS = {"hidden": (8, 8), "batch_size": 8}
STRONG = {"sac": {**NETS, "actor_hidden": (8, 8)}, "ensemble": NETS}
ONLINE = [
    *("--env", "Pendulum-v1", "--seeds", "2"),
    *("--decisions", "120", "--report-every", "20", "--episode-length", "15"),
]
PLAN = {"num_samples": 12, "iterations": 1, "horizon": 2, "proposals": 2}
ICEM = {"num_samples": 12, "num_elites": 3, "iterations": 2, "horizon": 4, "particles": 2}
VALUE = {"anchors": 8, "actions": 2}
GP = ["gp-icem", "--env", "pendulum", "--seeds", "2", "--episodes", "6", *SMALL_FLAGS]
CAR = {"model": SIZES["smoke"]["model"], "search": SIZES["smoke"]["search"], "sac": NETS}
CAR_OPTIONS = [f"{part}.{name}={json.dumps(value)}" for part, fields in CAR.items() for name, value in fields.items()]

MODES: dict[str, Mode] = {
    "gp-icem": training(*GP),
    "gp-icem, fitted value": training(
        *("gp-icem", "--env", "Pendulum-v1", "--seeds", "2", "--episodes", "5", "--episode-length", "6"),
        *_tiny(gp={"capacity": 64, "rank": 8, "fit_steps": 3, "fit_points": 16}, icem=ICEM, value=VALUE),
    ),
    "gp-icem, discounted": training(*GP, "--setting", "discounted", "--horizon-floor", "3"),
    "gp-icem, non-episodic": training(*GP, "--setting", "non-episodic", "--update-every", "4"),
    "gp-icem, unsupervised": training(*GP, "--setting", "unsupervised", "--explore", "unsupervised"),
    "gp-icem --jobs 2": training(*GP[:3], "--seeds", "4", "--episodes", "12", *SMALL_FLAGS, jobs=2),
    "mbpo": training("mbpo", *ONLINE, *_tiny(**STRONG)),
    "mbpo --preset paper": training("mbpo", "--preset", "paper", *ONLINE, *_tiny(sac=NETS, ensemble=NETS)),
    "mbpo --controller sac-mppi": training("mbpo", *ONLINE, "--controller", "sac-mppi", *_tiny(**STRONG, plan=PLAN)),
    "mbpo --controller sac-icem": training("mbpo", *ONLINE, "--controller", "sac-icem", *_tiny(**STRONG, plan=PLAN)),
    "mbpo --controller icem": training(
        *("mbpo", "--controller", "icem", "--schedule", "constant", "--env", "pendulum", "--seeds", "2"),
        *("--episodes", "5", "--episode-length", "6", "--capacity", "64"),
        *_tiny(ensemble=NETS, icem=ICEM, value=VALUE),
    ),
    "mbpo in worker processes": training(
        *("mbpo", *ONLINE, "--env", "dmc:reacher-hard", "--env-workers", "2", *_tiny(**STRONG))
    ),
    "sac": training("sac", *ONLINE, *_tiny(sac=NETS)),
    "sac --preset strong": training("sac", "--preset", "strong", *ONLINE, *_tiny(sac=STRONG["sac"])),
    "maxinfo-sac": training("maxinfo-sac", *ONLINE, *_tiny(sac=NETS, ensemble=NETS)),
    "sim-fsvgd": training(
        *("sim-fsvgd", "--env", "rc-car", "--seeds", "2", "--episodes", "3", "--episode-length", "5", *_tiny(**CAR))
    ),
    "dreamer": training("dreamer", *DREAMER, "--checkpoint-every", "1"),
    "experiment": repeated(experiment_words, lambda folder: (folder / "results" / "toy" / "smoke.csv").read_bytes()),
    "sweep": repeated(sweep_words, sweep_result),
    "hardware, simulated": repeated(
        lambda folder: [
            *(*SOMBRL, "hardware", "run", str(folder / "car"), "--backend-options", "clock=simulated"),
            *("--trainer-options", *CAR_OPTIONS, "--episodes", "3", "--steps", "20"),
        ],
        lambda folder: campaign_result(folder / "car"),
    ),
}
