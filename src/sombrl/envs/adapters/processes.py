"""Host simulators in worker processes: the same rows, bit for bit, stepped side by side.

Calls and their results travel over a socket pair, so nothing is left behind however a process ends. A worker that dies
closes its end, so the parent never waits for it; a parent that dies closes the others', and they end too. A dead worker
is a fault of the run, or with `restart` it is replaced.
"""

import functools
import itertools
import logging
import os
import pickle
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sombrl.envs.adapters.worker_link import StepBytes
from sombrl.envs.adapters.worker_process import PATIENCE, WorkerProcess
from sombrl.envs.guards import check_count, check_seeds
from sombrl.envs.interface import AbstractEnvs, Step
from sombrl.envs.rows import Rows
from sombrl.errors import RunFault, SimulatorFault, SombrlError
from sombrl.numerics import join_rows

ACCIDENT = 1000  # decisions: a simulator that raises after fewer has a bug, and is not restarted


class ProcessEnvs(AbstractEnvs):
    """`make(source, seeds, **options)`, a host adapter, with its rows spread over `workers` processes.

    The processes start with the first reset, or with `start`. States are those of the adapter itself, so a run
    saved with workers resumes without, and the other way round.
    """

    def __init__(
        self,
        make: Callable[..., AbstractEnvs],
        source: Any,
        seeds: Sequence[int],
        *,
        workers: int,
        environ: Mapping[str, str] | None = None,
        restart: bool = False,
        **options: Any,
    ):
        """`environ` are environment variables for the workers alone.

        With `restart` the death of a worker costs the episodes of its rows, and no more: their next decision (the lost
        one, if they were in the middle of it) comes back truncated, with the last observation and reward 0. So does an
        exception of a simulator that had gone well for `ACCIDENT` decisions.
        """
        self.seeds = check_seeds(seeds)
        count = min(check_count(workers, "workers"), len(self.seeds))
        if os.name != "posix":
            raise SombrlError("Worker processes need Linux or macOS; use env_workers 0 here.")
        # One made here has the spec, and refuses the caller's mistakes at once.
        sample = make(source, self.seeds[:1], **options)
        sample.close()
        self.spec, self.task, self.downstream = sample.spec, sample.task, sample.downstream
        self._sample, self.cost = sample, sample.cost
        bounds = np.linspace(0, len(self.seeds), count + 1).round().astype(int).tolist()
        self._spans = list(itertools.pairwise(bounds))
        self._orders = [
            _pickle_order(functools.partial(make, source, self.seeds[first:last], **options), self.spec.name)
            for first, last in self._spans
        ]
        self._codes = [StepBytes(self.spec, last - first) for first, last in self._spans]
        self._environ, self._restart = dict(environ or {}), restart
        self._rows = Rows(self.spec, self.seeds)
        self._lost = np.zeros(len(self.seeds), bool)  # episodes that ended with their worker, not yet reported
        self._workers: list[WorkerProcess] = []
        self._closed = False

    def start(self) -> None:
        """Start the processes without waiting for them, so that other work can go on meanwhile."""
        if self._closed:
            raise SombrlError(f"{self.spec.name} was closed; make it again.")
        if self._workers:
            return
        self._end = weakref.finalize(self, _end_all, self._workers)
        for i in range(len(self._spans)):
            self._workers.append(self._start_worker(i))

    def _start_worker(self, i: int) -> WorkerProcess:
        """A new process for the rows of worker `i`, which makes its environments first."""
        first, last = self._spans[i]
        seeds = self.seeds[first:last]
        plural = "s" * (len(seeds) > 1)
        who = f"{self.spec.name}: the worker process of seed{plural} {', '.join(map(str, seeds))}"
        return WorkerProcess(who, self._orders[i], self._environ)

    def reset_rows(self, rows: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """Start the given episode on the given rows; where all of them are, [seeds, obs]."""
        pairs = self._rows.check_reset(rows, episodes)
        rows, episodes = np.asarray(rows), np.asarray(episodes)
        calls = {
            i: (rows[first:last], episodes[first:last])
            for i, (first, last) in enumerate(self._spans)
            if rows[first:last].any()
        }
        for row, episode in pairs:
            self._rows.begin(row, episode)
        for i, obs in self._call("reset_rows", calls).items():
            span = slice(*self._spans[i])
            self._rows.obs[span][rows[span]] = obs[rows[span]]
        self._lost[rows] = False
        return self._rows.obs.copy()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Execute `actions` in [-1, 1] on the rows that are active."""
        return self.begin_step(actions, active)()

    def begin_step(self, actions: np.ndarray, active: np.ndarray) -> Callable[[], Step]:
        """Set the workers to work; the call returned waits for them."""
        actions, active = self._rows.check_step(actions, active)
        self._settle()
        self._replace_dead()
        sent = active & ~self._lost
        asked = [i for i, span in enumerate(self._spans) if sent[slice(*span)].any()]
        for i in asked:
            span = slice(*self._spans[i])
            self._workers[i].ask_step(self._codes[i].pack_call(actions[span], sent[span]))
        return functools.partial(self._finish_step, active, asked)

    def _finish_step(self, active: np.ndarray, asked: list[int]) -> Step:
        steps = {i: self._codes[i].unpack_result(content) for i, content in self._settle().items()}
        for i in asked:
            self._workers[i].steps += self._workers[i].ended is None
        self._replace_dead()
        at, lost, alive = self._rows, active & self._lost, active & ~self._lost
        reward, terminated, truncated = np.zeros(len(active), np.float64), np.zeros_like(active), lost.copy()
        cost = np.full(len(active), np.nan)
        for i, step in steps.items():
            span = slice(*self._spans[i])
            stepped = alive[span]
            at.obs[span][stepped] = step.obs[stepped]
            reward[span][stepped] = step.reward[stepped]
            terminated[span][stepped] = step.terminated[stepped]
            truncated[span][stepped] = step.truncated[stepped]
            if step.cost is not None:
                cost[span][stepped] = step.cost[stepped]
        self._lost[lost] = False
        at.decisions[active] += 1
        at.over |= terminated | truncated
        return Step(at.obs.copy(), reward, terminated, truncated, cost)

    def physical(self, actions: np.ndarray) -> np.ndarray:
        """`actions` in the units of the adapter."""
        return self._sample.physical(actions)

    def get_state(self) -> dict[str, np.ndarray]:
        """What the adapter saves, of all rows. A lost row is saved at the start of its episode."""
        states = list(self._call("get_state", {i: () for i in range(len(self._spans))}).values())
        return {key: join_rows([state[key] for state in states]) for key in states[0]}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `get_state`, here or of the adapter itself."""
        self._rows.check_state(state, {})
        spans = enumerate(self._spans)
        self._call("set_state", {i: ({k: v[first:last] for k, v in state.items()},) for i, (first, last) in spans})
        self._rows.set_state(state)
        self._lost[:] = False

    def render(self, row: int) -> np.ndarray:
        """The adapter's picture."""
        self._rows.require_started(row)
        i = next(i for i, (_, last) in enumerate(self._spans) if row < last)
        picture: np.ndarray = self._call("render", {i: (row - self._spans[i][0],)})[i]
        return picture

    def close(self) -> None:
        """End the processes."""
        self._closed = True
        if self._workers:
            self._end()

    def _call(self, method: str, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """The results of a method of the workers' adapters, with arguments for each worker."""
        self.start()
        self._settle()
        self._replace_dead()
        for i, arguments in calls.items():
            self._workers[i].ask(method, *arguments)
        answers = self._settle()
        for i in self._replace_dead():
            if i in calls:
                self._workers[i].ask(method, *calls[i])
                answers[i] = self._workers[i].answer()
        return {i: answers[i] for i in calls}

    def _settle(self) -> dict[int, Any]:
        """Every answer still owed (also one whose wait was interrupted); the first failure is raised after all.

        With `restart` a dead worker is not a failure: `_replace_dead` follows.
        """
        answers: dict[int, Any] = {}
        failures: list[Exception] = []
        for i, worker in enumerate(self._workers):
            try:
                while worker.owes:
                    answers[i] = worker.answer()
            except (SombrlError, RunFault) as error:
                if self._restart and isinstance(error, SimulatorFault) and worker.steps >= ACCIDENT:
                    worker.dismiss(error)
                elif error is not worker.ended:
                    failures.append(error)
            if worker.ended and not self._restart:
                failures.append(worker.ended)
        if failures:
            raise failures[0]
        return answers

    def _replace_dead(self) -> list[int]:
        """Put new workers in place of dead ones, their rows at the start of their episodes; which ones."""
        dead = [i for i, worker in enumerate(self._workers) if worker.ended]
        for i in dead:
            old, at, (first, last) = self._workers[i], self._rows, self._spans[i]
            assert old.ended is not None
            if old.replaces and not old.steps:
                raise old.ended  # a second time in a row
            logging.getLogger("sombrl").warning("%s It was replaced; its episodes are cut short.", old.ended)
            new = self._workers[i] = self._start_worker(i)
            new.replaces = True
            started, episodes = at.episodes[first:last] >= 0, at.episodes[first:last]
            self._lost[first:last] |= started & ~at.over[first:last]
            new.answer()
            if started.any():
                new.ask("reset_rows", started, episodes)
                new.answer()
        return dead


def _end_all(workers: list[WorkerProcess]) -> None:
    for worker in workers:
        worker.hang_up()
    deadline = time.monotonic() + PATIENCE
    for worker in workers:
        worker.end(max(0.0, deadline - time.monotonic()))


def _pickle_order(order: "functools.partial[AbstractEnvs]", name: str) -> bytes:
    """What a worker is to make, or the error for what it could not import."""
    from_main = getattr(order.args[0], "__module__", None) == "__main__"
    if not from_main:
        try:
            return pickle.dumps(order)
        except Exception:
            pass
    raise SombrlError(
        f"{name}: a worker process must be able to make the environment by itself; give a name, or a function from "
        "a module of its own, or use env_workers 0."
    )
