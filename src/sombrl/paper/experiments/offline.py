"""Learning from data alone: offline-sign and offline-to-online (beside the paper, which names offline learning).

The data come from an agent that learns in the environment first, from a seed of its own: its policy at the end
(expert), the first one that has half of what it gained over random actions (medium), all that it had seen by then
(mixed), and random actions. Scale small fits one CPU core: small networks, five seeds that learn from the same data.
"""

import dataclasses
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.agent.agent import Agent
from sombrl.agent.make import make
from sombrl.paper.experiments.base import Cell, Experiment, FunctionCell, Headline, recorded_as
from sombrl.paper.experiments.figures import LOOKS, Look, Panel, draw_tiles
from sombrl.runs.plots import COLORS
from sombrl.storage.datasets import Rows
from sombrl.training.origin import concatenated, rows_of_run
from sombrl.training.parts import PartsTrainer
from sombrl.training.play import play
from sombrl.training.random_actions import random_actions

DATA = ("random", "mixed", "medium", "expert")
SIGNS = ("pessimistic", "greedy", "optimistic")
RETURN, WEIGHT = "eval/ep_rew_mean", "explore/bonus_weight"
BEHAVIOUR_SEED, FIRST_EPISODE = 100, 3_000_000
"""Of the agent that the data are from, and of its recorded episodes: no learner and no evaluation has these."""


@dataclasses.dataclass(frozen=True)
class Size:
    """How long everything is, at one scale."""

    width: int = 64
    seeds: int = 5
    episode_length: int = 200
    behaviour: int = 4000
    """Decisions of the agent that the data are from."""
    every: int = 500
    """Decisions, or updates, between two looks at an agent."""
    episodes: int = 10
    """Of a dataset."""
    offline: int = 4000
    """Decisions' worth of learning from data."""
    online: int = 2000
    evaluated: int = 3
    """Episodes per seed."""


SIZES = {
    "smoke": Size(8, 2, 10, 40, 20, 4, 40, 40, 1),
    "small": Size(),
    "paper": Size(width=128, behaviour=10_000, every=1000, offline=10_000, online=5000, evaluated=10),
}
ENVS = {"smoke": ("pendulum",), "small": ("pendulum",), "paper": ("pendulum", "wall")}


def agent(env: str, size: Size, **settings: Any) -> Agent:
    """An agent with networks of that size."""
    nets = {"hidden": (size.width, size.width), "batch_size": 2 * size.width}
    sac = nets | {"actor_hidden": (size.width, size.width)}
    given: dict[str, Any] = {
        "report_every": size.every,
        "episode_length": size.episode_length,
        "sac": sac,
        "ensemble": nets,
    }
    return make("mbpo", env, **given | settings)


@functools.cache
def datasets(env: str, size: Size) -> dict[str, Rows]:
    """The four, actions in the environment's own units; the same for every cell of a process."""
    learner = agent(env, size, explore="greedy", decisions=size.behaviour, seed=BEHAVIOUR_SEED)
    found = {"random": played(learner, None, size.episodes)}
    looks = []
    for _ in learner.iterations(size.behaviour // size.every):
        value = float(learner.evaluate(size.evaluated).mean())
        policy = learner.trainer.policy("explore")
        looks.append((value, played(learner, policy, size.episodes), learner.iteration))
    random = float(np.sum(found["random"].reward)) / size.episodes
    half = (random + looks[-1][0]) / 2
    _, found["medium"], until = next((look for look in looks if look[0] >= half), looks[-1])
    assert isinstance(learner.trainer, PartsTrainer), "mbpo is made of parts"
    whole = rows_of_run(learner.trainer)[0]
    seen = whole.at(np.arange(until * size.every))
    found["mixed"] = dataclasses.replace(seen, action=learner.envs.physical(seen.action).reshape(seen.number, -1))
    found["expert"] = looks[-1][1]
    return found


def played(learner: Agent, policy: Any, episodes: int) -> Rows:
    """Whole episodes of a policy as it explores, or of random actions."""
    envs, found = learner.trainer.maker.make(learner.seeds), []
    if policy is None:
        policy = RandomPolicy(learner)
    for one in play(policy, envs, first_episode=FIRST_EPISODE, episodes=episodes, record=True):
        rows = one.rows
        columns = rows.obs, rows.action, rows.reward, rows.next_obs, rows.terminated, rows.truncated
        found.append(Rows(*(np.asarray(column[0])[one.valid[0]] for column in columns)))
    all_of_them = concatenated(found)
    physical = envs.physical(all_of_them.action).reshape(all_of_them.number, -1)
    return dataclasses.replace(all_of_them, action=physical)


class RandomPolicy:
    """Uniform actions; what `play` needs of a policy."""

    def __init__(self, learner: Agent):
        self._seeds, self._size = learner.seeds, learner.envs.spec.action_dim

    def begin(self, copies: int = 1, *, stream: int | None = None) -> tuple[int, int]:
        """The episode and the decision."""
        return stream or 0, 0

    def act(self, memory: tuple[int, int], obs: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
        """The next actions."""
        episode, t = memory
        return random_actions(self._seeds, np.full(len(obs), episode), t, self._size), (episode, t + 1)


def written(folder: str, rows: Rows) -> str:
    """The data as a file that `--offline` reads."""
    path = Path(folder) / "data.npz"
    np.savez(path, **{field.name: getattr(rows, field.name) for field in dataclasses.fields(rows)})
    return str(path)


def watched(learner: Agent, size: Size, method: str, env: str) -> Iterator[dict[str, Any]]:
    """Train to the end, and look at it at times."""
    for report in learner.iterations(learner.planned_iterations):
        returns = learner.evaluate(size.evaluated).mean(axis=0)
        for i, seed in enumerate(learner.seeds):
            numbers = {RETURN: returns[i], WEIGHT: report.metrics[WEIGHT][i]}
            for metric, value in numbers.items():
                yield row(env, method, seed, metric, int(report.decisions[i]), float(value))


def row(env: str, method: str, seed: int, metric: str, decisions: int, value: float) -> dict[str, Any]:
    """One row of the table; a decision is one frame in these worlds."""
    where = {"env": env, "method": method, "setting": "finite-horizon", "seed": seed}
    return where | {"metric": metric, "env_frames": decisions, "decisions": decisions, "value": value}


def of_data(rows: Rows, env: str, size: Size) -> dict[str, Any]:
    """The mean return of the data's episodes."""
    return row(env, "data", 0, RETURN, size.every, float(np.sum(rows.reward) / np.sum(rows.ends)))


@recorded_as("sombrl.experiments.offline.sign")
def sign(env: str, data: str, **numbers: int) -> list[dict[str, Any]]:
    """The three signs of λ on one dataset."""
    size, label = Size(**numbers), f"{env} data={data}"
    rows = datasets(env, size)[data]
    found = [of_data(rows, label, size)]
    with tempfile.TemporaryDirectory() as folder:
        path = written(folder, rows)
        for explore in SIGNS:
            learner = agent(env, size, explore=explore, offline=path, decisions=size.offline, seeds=size.seeds)
            found += watched(learner, size, explore, label)
    return found


@recorded_as("sombrl.experiments.offline.to_online")
def to_online(env: str, data: str, **numbers: int) -> list[dict[str, Any]]:
    """Going on with optimism from what pessimism has learned, from the data alone, and from nothing."""
    size, label = Size(**numbers), f"{env} data={data}"
    rows = datasets(env, size)[data]
    found = [of_data(rows, label, size)]
    with tempfile.TemporaryDirectory() as folder:
        path, run = written(folder, rows), str(Path(folder) / "run")
        before = agent(env, size, explore="pessimistic", offline=path, decisions=size.offline, seeds=size.seeds)
        for _ in before.iterations(before.planned_iterations):
            pass
        before.save(run)
        for i, value in enumerate(before.evaluate(size.evaluated).mean(axis=0)):
            found.append(row(label, "continued", before.seeds[i], RETURN, 0, float(value)))
        for method, source in (("continued", run), ("data-alone", path), ("over", None)):
            learner = agent(env, size, explore="optimistic", start_from=source, decisions=size.online, seeds=size.seeds)
            found += watched(learner, size, method, label)
    return found


def cells(scale: str, *, function: Any) -> list[Cell]:
    """Every dataset in every world."""
    return [
        FunctionCell(f"{env}/{data}", function, {"env": env, "data": data, **dataclasses.asdict(SIZES[scale])})
        for env in ENVS[scale]
        for data in (DATA if function is sign else DATA[:3])
    ]


SIGN_LOOKS = {
    "pessimistic": Look("pessimistic, λ calibrated", COLORS[2]),
    "greedy": Look("greedy", COLORS[3], "-."),
    "optimistic": LOOKS["optimistic"],
    "data": Look("the data's episodes", LOOKS["oracle"].color, "--"),
}
ONLINE_LOOKS = {
    "continued": Look("the offline run continued", COLORS[2]),
    "data-alone": Look("its data alone", COLORS[1]),
    "over": Look("starting over", COLORS[0], "-."),
    "data": SIGN_LOOKS["data"],
}
PANEL = Panel(RETURN, "return without exploring", x="decisions", reference="data")
LAST = Headline(RETURN, "return at the end")
OFFLINE_SIGN = Experiment(
    name="offline-sign",
    summary="pessimistic, greedy and optimistic learning from the same data, of random to expert policies",
    figure="beside the paper, no figure",
    cells=functools.partial(cells, function=sign),
    draw=functools.partial(
        draw_tiles, panel=PANEL, looks=SIGN_LOOKS, title="The sign of λ, offline", xlabel="decisions' worth"
    ),
    headlines=(LAST, Headline(WEIGHT, "last λ")),
)
"""Does turning the sign of λ help where nothing can be tried? The same data, networks and updates for all three."""
OFFLINE_TO_ONLINE = Experiment(
    name="offline-to-online",
    summary="going on with optimism from an offline run, against its data alone and starting over",
    figure="beside the paper, no figure",
    cells=functools.partial(cells, function=to_online),
    draw=functools.partial(draw_tiles, panel=PANEL, looks=ONLINE_LOOKS, title="Offline to online", xlabel="decisions"),
    headlines=(Headline(RETURN, "mean return on the way", last=1_000), LAST),
)
"""Is it worth to go on from an offline run with the sign turned back? Decisions are those in the environment."""
