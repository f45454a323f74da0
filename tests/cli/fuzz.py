"""Command lines nobody would type, over all commands: `python -m tests.cli.fuzz 0 20` prints the first twenty.

Seeds are fixed: line number N is the same tomorrow.
"""

import random
import shlex
import string
import sys
from collections.abc import Callable
from typing import Any

from sombrl.algorithms import ALGORITHMS
from sombrl.cli.app import COMMANDS
from sombrl.cli.train import _options
from sombrl.config.kinds import Kind
from sombrl.paper.experiments import EXPERIMENTS

ODD_TEXTS = (
    *("", " ", "-", "--", "=", "x", "None", "none", "true", "λ", "é\u0301", "日本", "\u202ereversed", "a b", "a\nb"),
    *("\udcff", "*", "~", "$HOME", "%s", "{0}", "[bold]x", "<b>", "'", '"', "--help", "-h", "--version", "a" * 300),
    *("a/" * 3000, "x,y,", "x=", "=x", "a=b=c", "\x1b[31m", "sombrl:Pendulum", "os:system", "..:..", "a:b:c", "a.b:c"),
)
ODD_NUMBERS = (
    *("0", "-0", "-1", "1e400", "-1e400", "nan", "inf", "-inf", "1e308", "1e-400", "9" * 25, "9" * 5000, "2147483648"),
    *("0x10", "1_000", "1e5", "+5", "½", "٣", "5.0", "1,5", "1/0", "True", "three", "1e", "0.1.2", "5 6"),
)
PATHS = (
    *("run", "run/", "./run", "policy", "runs", "new", "new/deep/er", "file.txt", "file.txt/new", "empty", "fifo"),
    *("loop", "dangling", "link", "unreadable", "table.csv", "half.csv", "sweep.toml", "bad.toml", "search.toml"),
    *("campaign.toml", "campaign.toml/"),
    *("car", "run/config.json", "run/metrics.jsonl", "run/checkpoints", "new.csv", "new.png", "new.html", "new.gif"),
    *("new.parquet", "new.toml", "NEW.CSV", ".", "..", "/dev/null", "/dev/full", "/proc/self/nothing", "\\", "new\n"),
    *("a" * 300, "b" * 300 + ".csv", "d/" * 3000 + "x.html", "\udcff.csv", "λ.csv", " ", "-", "", "~", "*.csv", "n?w"),
)
LIKELY = ("run", "policy", "runs", "table.csv", "sweep.toml", "campaign.toml", "search.toml", "new", "new.csv")
ENVS = (
    *("pendulum", "mountain-car", "deceptive-chain", "wall", "rc-car", "Pendulum-v1", "CartPole-v1", "Acrobot-v1"),
    *(
        "dmc:cartpole-swingup",
        "dmc:nothing",
        "dmc:",
        "dmc-vision:nothing",
        "atari:Pong",
        "atari:",
        "dmc:a-b-c",
    ),
    *(
        "world:Good-v0",
        "world:Bad-v0",
        "nowhere:X-v0",
        "playground:X",
        "pendulm",
        "Pendulum-v7",
        "pendulum ",
        "PENDULUM",
    ),
)
DASHES = ("–", "—", "-", "---")


def odd(rng: random.Random) -> str:
    """Anything."""
    kind = rng.randrange(5)
    if kind == 0:
        return "".join(rng.choices(string.printable, k=rng.randrange(1, 12)))
    return rng.choice((ODD_TEXTS, ODD_NUMBERS, PATHS, ENVS)[kind - 1])


def number(rng: random.Random) -> str:
    """A number, or nearly one."""
    return rng.choice(ODD_NUMBERS) if rng.random() < 0.3 else str(rng.choice([1, 1, 2, 3, 5, 0.5]))


def path(rng: random.Random) -> str:
    """A path, or nearly one."""
    return odd(rng) if rng.random() < 0.1 else rng.choice(PATHS if rng.random() < 0.4 else LIKELY)


def one_of(*names: str) -> Callable[[random.Random], str]:
    """One of some names, or nearly one."""
    return lambda rng: mistyped(rng, rng.choice(names)) if rng.random() < 0.2 else rng.choice(names)


def environment(rng: random.Random) -> str:
    """A name of an environment, or nearly one."""
    return odd(rng) if rng.random() < 0.1 else rng.choice(ENVS)


def pair(rng: random.Random) -> str:
    """name=value, or nearly."""
    name = rng.choice(("slope", "reward", "max_speed", "env", "clock", "seed", "gp.rank", "episodes", "explore", ""))
    return f"{name}{rng.choice(('=', '=', '=', '', '=='))}{rng.choice((number, odd))(rng)}"


def flag(rng: random.Random) -> None:
    """An option without a value."""


Value = Callable[[random.Random], Any]
TRUST: dict[str, Value] = {"--env": environment, "--trust": flag}
LOGGING: dict[str, Value] = {"--no-tensorboard": flag, "--wandb": flag, "--no-films": flag}
WORKERS: dict[str, Value] = {
    "--out": path,
    "--backend": one_of("local", "ray", "slurm"),
    "--workers": number,
    "--retries": number,
    "--cpus-per-cell": number,
    "--gpus-per-cell": number,
    "--address": odd,
    "--partition": odd,
    "--minutes": number,
    "--memory": number,
    "--slurm-local": flag,
    "--trust": flag,
}
TAKES: dict[str, tuple[tuple[Value, ...], dict[str, Value]]] = {
    "resume": ((path,), {"--episodes": number, "--checkpoint-every": number, **LOGGING, **TRUST}),
    "eval": (
        (path,),
        {
            **{"--episodes": number, "--explore": flag, "--task": odd, "--plan": one_of("mppi", "icem", "none")},
            **{"--video": path, **TRUST},
        },
    ),
    "bounds": (
        (path,),
        {"--episodes": number, "--factor": number, "--theory": flag, "--calibrated": number, **TRUST},
    ),
    "plot": ((path, path), {"--out": path}),
    "export": ((path, path), {"--out": path, "--experiment": odd}),
    "export-policy": ((path,), {"--out": path, "--seed": number, "--onnx": flag, **TRUST}),
    "export-replay": ((path,), {"--out": path, "--seed": number, **TRUST}),
    "report": ((path, path), {"--out": path, "--live": flag, "--axis": one_of("frames", "decisions"), "--title": odd}),
    "experiment": (
        (one_of(*EXPERIMENTS),),
        {
            **{"--scale": one_of("smoke", "small", "paper"), "--runs": path, "--cells": odd, "--partial": flag},
            **{"--env-workers": number, "--data": path, "--redraw": flag, **WORKERS},
        },
    ),
    "sweep": ((path, pair), {"--partial": flag, "--dry-run": flag, "--results": path, **WORKERS}),
    "tune": ((path, pair), {"--trials": number, **WORKERS}),
    "status": ((path,), {"--watch": flag, "--every": number}),
    "hardware": (
        (one_of("run", "status", "check"), path),
        {
            **{"--backend": one_of("sim", "replay", "remote", "os:system", "world:car"), "--backend-options": pair},
            **{"--trainer": one_of("sim-fsvgd", "random", "mbpo", "os:system"), "--trainer-options": pair},
            **{"--episodes": number, "--steps": number, "--rate": number, "--seed": number, "--reset-policy": path},
            **{"--reset": one_of("teleport", "manual", "auto"), "--margin-factor": number, "--trust": flag},
            **{"--learner": one_of("start", "external"), "--learner-patience": number, "--supervisor.wall": number},
        },
    ),
    "list": ((one_of("algorithms", "explorations", "envs", "presets", "experiments"),), {}),
    "check-env": ((environment,), {"--env-kwargs": pair, "--episode-length": number}),
    "doctor": ((), {"--all": flag}),
    "demo": ((), {"--out": path, "--seeds": number, "--episodes": number, "--jobs": number}),
}
"""Of every command but train: what comes first, and its options."""


def mistyped(rng: random.Random, word: str) -> str:
    """A word with a letter missing, doubled, exchanged or in the other case."""
    if len(word) < 2:
        return word + "x"
    at = rng.randrange(len(word) - 1)
    return rng.choice(
        (
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word.upper(),
            word + rng.choice(string.ascii_letters),
        )
    )


def of_kind(rng: random.Random, kind: Kind) -> list[str]:
    """The words of a value that a field may have, or may not."""
    if rng.random() < 0.07:
        return [odd(rng)]
    if kind.choices:
        return [one_of(*map(str, kind.choices))(rng)]
    if kind.base is tuple:
        return [word for _ in range(rng.randrange(4)) for word in of_kind(rng, kind.items[0])]
    if kind.base in (int, float):
        ends = [f"{bound:.10g}" for bound in (kind.low, kind.high) if bound is not None]
        return [rng.choice([*ends, number(rng), number(rng)])]
    if kind.base is bool:
        return [odd(rng)] if rng.random() < 0.1 else []
    return [(path if kind.base.__name__ == "Path" else odd)(rng)]


def train(rng: random.Random) -> list[str]:
    """`train` of any algorithm, with a few of its options or of another one's."""
    name = rng.choice(list(ALGORITHMS))
    words = [one_of(name)(rng)]
    if rng.random() < 0.8:
        words += ["--env", environment(rng) if rng.random() < 0.25 else "rc-car" if name == "sim-fsvgd" else "pendulum"]
    for _ in range(rng.randrange(5)):
        fields = _options(name if rng.random() < 0.9 else rng.choice(list(ALGORITHMS)))
        field = fields[rng.choice(list(fields))]
        words += [field.flag, *(environment(rng) for _ in "x" if field.name == "env")]
        words += of_kind(rng, field.kind) if field.name != "env" else []
    return words


def others(rng: random.Random, command: str) -> list[str]:
    """Any other command."""
    first, options = TAKES[command]
    words = [make(rng) for make in first if rng.random() < 0.9]
    for name in rng.choices(list(options), k=rng.randrange(4)) if options else ():
        value = options[name](rng)
        words += [name] if value is None else [name, value]
    if command in ("export", "export-policy", "export-replay") and rng.random() < 0.7:
        words += ["--out", path(rng)]
    return words


def garbled(rng: random.Random, words: list[str]) -> list[str]:
    """The words with one of them missing, doubled, mistyped, joined to the next or followed by another."""
    at = rng.randrange(len(words))
    match rng.randrange(8):
        case 0:
            return words[:at] + words[at + 1 :]
        case 1:
            return words[:at] + words[at : at + 2] + words[at:]
        case 2:
            return [*words[:at], mistyped(rng, words[at]), *words[at + 1 :]]
        case 3 if at + 1 < len(words):
            return [*words[:at], f"{words[at]}={words[at + 1]}", *words[at + 2 :]]
        case 4:
            return [*words[:at], odd(rng), *words[at:]]
        case 5 if words[at].startswith("--"):
            return [*words[:at], rng.choice(DASHES) + words[at][2:], *words[at + 1 :]]
        case 6:
            return [*words, "--" + rng.choice(("help", "zzz", "lambda", "gp.rnak", "seeds", "no-out", "", "=", "-"))]
    return words


def line(seed: int) -> list[str]:
    """Command line number `seed`, without what cannot be in one."""
    rng = random.Random(seed)
    command = "train" if rng.random() < 0.45 else rng.choice([name for name in COMMANDS if name != "train"])
    words = [command, *(train(rng) if command == "train" else others(rng, command))]
    if rng.random() < 0.2:
        words = garbled(rng, words)
    return [word.replace("\0", "") for word in words]


if __name__ == "__main__":
    for seed in range(*map(int, sys.argv[1:])):
        print(seed, shlex.join(["sombrl", *line(seed)]).encode("utf-8", "backslashreplace").decode())
