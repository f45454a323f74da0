"""`sombrl eval`: returns of a trained agent on episodes it has never seen, as a table, a record, a film."""

import contextlib
import datetime
import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.agent.agent import Agent
from sombrl.agent.make import load_with
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.trust import NO_WORD, Word
from sombrl.records import RunFault, SombrlError
from sombrl.runs.video import check_video, film_rate, write_video
from sombrl.storage.files import read_file, sync_folder, write_synced
from sombrl.storage.run_folder import RunFolder

BOOTSTRAP_DRAWS = 10_000


def evaluate_run(
    run: Path,
    *,
    episodes: int,
    explore: bool = False,
    task: str | None = None,
    plan: str | None = None,
    video: Path | None = None,
    word: Word = NO_WORD,
) -> None:
    """Print the returns of `episodes` episodes per seed and add them to the run's eval.json.

    Plans for the task alone under the mean model (a downstream `task`, or the environment's own), or with the run's
    strategy when `explore`. `plan` is for agents with a policy: by short plans from it, or by itself. With `video`, the
    first seed's first episode is filmed.
    """
    if episodes < 1:
        raise SombrlError(f"--episodes must be at least 1, not {episodes}.")
    if video is not None:
        check_video(video)
    RunFolder.open(Path(run)).refuse_links()
    record_path = Path(run) / "eval.json"
    agent = load_with(word, run)
    _read(record_path)  # a damaged record is refused now, not after the episodes
    for note in agent.notes:
        print(note, file=sys.stderr)
    camera = None if video is None else _Camera(agent)
    expected = None if video is None else video.with_name(f"{video.stem}-foresight{video.suffix}")
    foreseen = None if expected is None else agent.trainer.foresight()
    if expected is not None and foreseen:
        check_video(expected)

    returns = agent.evaluate(episodes, explore=explore, task=task, plan=plan, on_step=camera)
    planner = (
        "by the policy, without its noise"
        if agent.trainer.learns_policy
        else "planned for the task alone, by the mean model"
    )
    if explore:
        planner = f"with the {agent.config.explore.explore} strategy, as in training"
    elif task is not None:
        planner = f"planned for the task {task}, zero-shot, by the mean model"
    if (name := plan or agent.trainer.plan) not in (None, "none"):
        planner = f"by short plans from the policy ({name}){', ' + planner if explore or task is not None else ''}"
    print(table(agent, returns, planner))
    _extend(record_path, _record(agent, returns, explore, task, plan, planner))
    print(f"added to {record_path}")
    if video is not None and camera is not None:
        write_video(video, camera.frames, fps=film_rate(agent.envs.spec.action_repeat))
        print(f"wrote {video} (seed {agent.seeds[0]}, {len(camera.frames)} frames)")
        if expected is not None and foreseen:
            write_video(expected, foreseen, fps=10.0)
            print(f"wrote {expected} (above what was recorded, below it what the model expects, last the difference)")


def table(agent: Agent, returns: np.ndarray, planner: str) -> str:
    """The returns, [episodes, seeds], as text: a line per seed, then all of them together."""
    count, num_seeds = returns.shape
    lines = [
        f"{agent.label} · after {agent.trainer.trained} of training",
        f"{count} episode{'s' * (count != 1)} per seed, {planner}",
        "",
        f"{'seed':>6}  {'median':>10}  [{'min':>10}, {'max':>10}]",
    ]
    for seed, column in zip(agent.seeds, returns.T, strict=True):
        lines.append(f"{seed:>6}  {np.median(column):>10.2f}  [{column.min():>10.2f}, {column.max():>10.2f}]")
    low, high = np.percentile(returns, [25, 75])
    mean = returns.mean()
    lines += [
        "",
        f"median of all {returns.size} episodes  {np.median(returns):.2f}, interquartile range [{low:.2f}, {high:.2f}]",
    ]
    if num_seeds > 1:
        low, high = bootstrap(returns)
        lines.append(f"mean over {num_seeds} seeds  {mean:.2f}, 95% bootstrap interval [{low:.2f}, {high:.2f}]")
    else:
        lines.append(f"mean  {mean:.2f} (one seed: nothing can be said about the spread over seeds)")
    return "\n".join(lines)


def bootstrap(returns: np.ndarray) -> tuple[float, float]:
    """95% percentile interval of the mean when the seeds are drawn again; a function of the returns alone."""
    per_seed = returns.mean(axis=0)
    chosen = np.random.default_rng(0).integers(len(per_seed), size=(BOOTSTRAP_DRAWS, len(per_seed)))
    low, high = np.percentile(per_seed[chosen].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


class _Camera:
    """Keeps the first row's pictures of the first episode; made, it has shown that the world can be drawn."""

    def __init__(self, agent: Agent):
        self.frames: list[np.ndarray] = []
        self._episodes = 0
        envs = agent.trainer.maker.make(agent.seeds, render=True)
        try:
            envs.reset(0)
            envs.render(0)
        except (SombrlError, RunFault):
            raise
        except Exception as error:  # a simulator's own way of not drawing
            reason = f"{type(error).__name__}: {error}".split("\n")[0]
            raise SombrlError(f"{agent.envs.spec.name} cannot draw ({reason}): evaluate without --video.") from error
        finally:
            envs.close()

    def __call__(self, envs: AbstractEnvs, decision: int) -> None:
        self._episodes += decision == 0
        if self._episodes == 1:
            self.frames.append(envs.render(0))


def _record(
    agent: Agent, returns: np.ndarray, explore: bool, task: str | None, plan: str | None, planner: str
) -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "settings": {
            "episodes": len(returns),
            "explore": explore,
            "task": task,
            "plan": plan or agent.trainer.plan,
            "planner": planner,
            "trained": agent.trainer.trained,
        },
        "returns": {str(seed): column.tolist() for seed, column in zip(agent.seeds, returns.T, strict=True)},
    }


def _read(path: Path) -> list[dict[str, Any]]:
    """The evaluations so far."""
    if not path.exists():
        return []
    try:
        evaluations = json.loads(read_file(path))
        if not isinstance(evaluations, list):
            raise ValueError("not a list")
    except (OSError, ValueError, RecursionError) as error:
        raise SombrlError(f"{path} cannot be read as a list of evaluations ({error}): move it away.") from error
    return evaluations


def _extend(path: Path, evaluation: dict[str, Any]) -> None:
    """Add one evaluation. Locked, so that of two at the same time neither is lost."""
    aside = path.with_name(f".tmp-eval-{os.getpid()}")
    try:
        with open(path.with_name(".eval-lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            write_synced(aside, json.dumps([*_read(path), evaluation], indent=1).encode())
            os.replace(aside, path)
            sync_folder(path.parent)
    except OSError as error:
        raise RunFault(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        with contextlib.suppress(OSError):  # on a disk that cannot be written, which was said above
            aside.unlink(missing_ok=True)
