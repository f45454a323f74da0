"""Host simulators in worker processes: the same rows, bit for bit, stepped side by side.

Actions and observations travel in shared memory without a name, so that nothing is left behind however a process
ends; one message over a socket pair wakes a worker, one answers. A worker that dies closes its end, so nobody
waits for it; a parent that dies closes the others', and they end too. A dead worker is a fault of the run, or with
`restart` another takes its place.
"""

import contextlib
import functools
import itertools
import json
import logging
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.envs.adapters.worker import CALL, FAILED, STEP, Board, HungUp, Link
from sombrl.envs.guards import check_count, check_seeds
from sombrl.envs.interface import AbstractEnvs, Step
from sombrl.envs.rows import Rows
from sombrl.errors import RunFault, SimulatorFault, SombrlError
from sombrl.numerics import join_rows

# Not `multiprocessing`: that runs the caller's script again in each child, which surprises scripts without a
# guard. The package is put in place without running its `__init__`, which loads JAX: seconds and memory that a
# simulator does not need. Whoever asks it for a name after all (a user's environment may) gets the real thing.
BOOT = """
import json, os, sys, types
link, board, path, folder = json.loads(sys.argv[1])
sys.path[:] = path
package = types.ModuleType("sombrl")
package.__path__, package.__file__ = [folder], os.path.join(folder, "__init__.py")
def load(name):
    if name.startswith("__") and name != "__version__":
        raise AttributeError(name)
    del package.__getattr__
    with open(package.__file__) as file:
        exec(compile(file.read(), package.__file__, "exec"), package.__dict__)
    return getattr(package, name)
package.__getattr__ = load
sys.modules["sombrl"] = package
from sombrl.envs.adapters.worker import serve
serve(link, board)
os._exit(0)  # nothing is left to tidy up
"""
PATIENCE = 5.0  # seconds that a worker has to end by itself
ACCIDENT = 1000  # decisions: a simulator that raises after fewer is wrong, and not just unlucky


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
        # One made here says what they are like, and has what the caller got wrong told at once.
        sample = make(source, self.seeds[:1], **options)
        sample.close()
        self.spec, self.task, self.downstream = sample.spec, sample.task, sample.downstream
        self._sample = sample
        bounds = np.linspace(0, len(self.seeds), count + 1).round().astype(int).tolist()
        self._spans = list(itertools.pairwise(bounds))
        self._orders = [
            _pickle_order(functools.partial(make, source, self.seeds[first:last], **options), self.spec.name)
            for first, last in self._spans
        ]
        self._environ, self._restart = dict(environ or {}), restart
        self._rows = Rows(self.spec, self.seeds)
        self._lost = np.zeros(len(self.seeds), bool)  # episodes that went with their worker, not yet reported
        self._workers: list[_Worker] = []
        self._memory = _Memory()
        self._closed = False

    def start(self) -> None:
        """Start the processes without waiting for them, so that other work can go on meanwhile."""
        if self._closed:
            raise SombrlError(f"{self.spec.name} was closed; make it again.")
        if self._workers:
            return
        spec = self.spec
        self._shape = (len(self.seeds), spec.obs_dim, spec.action_dim, spec.obs_dtype.name)
        self._memory.open(Board.size(*self._shape))
        self._end = weakref.finalize(self, _end_all, self._workers, self._memory)
        self._board = Board(self._memory.fd, *self._shape)
        for i in range(len(self._spans)):
            self._workers.append(self._employ(i))
        if not self._restart:
            self._memory.close()  # the mappings stay

    def _employ(self, i: int) -> "_Worker":
        """A new process for the rows of worker `i`, which makes its environments next."""
        first, last = self._spans[i]
        worker = _Worker(self._memory.fd, self.spec.name, self.seeds[first:last], self._environ)
        worker.ask(CALL, pickle.dumps((first, last, self._shape, self._orders[i])))
        return worker

    def reset_rows(self, rows: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """Start the given episode on the given rows; where all of them are, [seeds, obs]."""
        pairs = self._rows.check_reset(rows, episodes)
        rows, episodes = np.asarray(rows), np.asarray(episodes)
        calls: dict[int, tuple] = {
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
        board = self._board
        self._settle()
        self._replace_dead()
        board.actions[:], board.active[:] = actions, active & ~self._lost
        asked = [i for i, span in enumerate(self._spans) if board.active[slice(*span)].any()]
        for i in asked:
            self._ask(i, STEP)
        return functools.partial(self._finish_step, active, asked)

    def _finish_step(self, active: np.ndarray, asked: list[int]) -> Step:
        at, board = self._rows, self._board
        self._settle()
        for i in asked:
            self._workers[i].steps += self._workers[i].ended is None
        self._replace_dead()
        lost, alive = active & self._lost, active & ~self._lost
        at.obs[alive] = board.obs[alive]
        reward = np.where(alive, board.reward, 0.0)
        terminated, truncated = alive & board.terminated, (alive & board.truncated) | lost
        self._lost[lost] = False
        at.decisions[active] += 1
        at.over |= terminated | truncated
        return Step(at.obs.copy(), reward, terminated, truncated)

    def physical(self, actions: np.ndarray) -> np.ndarray:
        """As the adapter has it."""
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
        return self._call("render", {i: (row - self._spans[i][0],)})[i]

    def close(self) -> None:
        """End the processes."""
        self._closed = True
        if self._workers:
            self._end()

    def _call(self, method: str, calls: Mapping[int, tuple]) -> dict[int, Any]:
        """The results of a method of the workers' adapters, with arguments for each worker."""
        self.start()
        self._settle()
        self._replace_dead()
        for i, arguments in calls.items():
            self._ask(i, CALL, pickle.dumps((method, arguments)))
        answers = self._settle()
        for i in self._replace_dead():
            if i in calls:
                self._workers[i].ask(CALL, pickle.dumps((method, calls[i])))
                answers[i] = self._workers[i].answer()
        return {i: pickle.loads(answers[i]) for i in calls}

    def _ask(self, i: int, kind: bytes, payload: bytes = b"") -> None:
        """A worker that turns out to be dead is left to `_replace_dead`, where there is one."""
        with contextlib.suppress(*([_Ended] if self._restart else [])):
            self._workers[i].ask(kind, payload)

    def _settle(self) -> dict[int, bytes]:
        """Every answer still owed (also one whose wait was interrupted); the first failure is raised after all."""
        answers, failures = {}, []
        for i, worker in enumerate(self._workers):
            try:
                while worker.owes:
                    answers[i] = worker.answer()
            except (SombrlError, RunFault) as error:
                if self._restart and isinstance(error, SimulatorFault) and worker.steps >= ACCIDENT:
                    worker.dismiss(error)
                elif not (self._restart and isinstance(error, _Ended)):
                    failures.append(error)
        if failures:
            raise failures[0]
        return answers

    def _replace_dead(self) -> list[int]:
        """With `restart`: new workers for the dead ones, their rows at the start of their episodes; which ones."""
        dead = [i for i, worker in enumerate(self._workers) if worker.ended] if self._restart else []
        for i in dead:
            worker, at, (first, last) = self._workers[i], self._rows, self._spans[i]
            assert worker.ended is not None
            if worker.replaces and not worker.steps:
                raise worker.ended  # a second time in a row
            logging.getLogger("sombrl").warning("%s Another takes its place; its episodes are cut short.", worker.ended)
            self._workers[i] = self._employ(i)
            self._workers[i].replaces = True
            started = at.episodes[first:last] >= 0
            self._lost[first:last] |= started & ~at.over[first:last]
            self._workers[i].answer()
            if started.any():
                episodes = at.episodes[first:last]
                self._workers[i].ask(CALL, pickle.dumps(("reset_rows", (started, episodes))))
                self._workers[i].answer()
        return dead


class _Ended(RunFault):
    """A worker process is no more."""


class _Worker:
    """One process and the connection to it."""

    def __init__(self, board_fd: int, name: str, seeds: Sequence[int], environ: Mapping[str, str]):
        ours, theirs = socket.socketpair()
        self.link, self.name, self.seeds, self.owes = Link(ours), name, list(seeds), 0
        self.ended: _Ended | None = None
        self.replaces, self.steps = False, 0  # another's place; decisions so far
        folder = str(Path(__file__).parents[2])
        argument = json.dumps([theirs.fileno(), board_fd, sys.path, folder])
        self.process = subprocess.Popen(
            [sys.executable, "-c", BOOT, argument],
            pass_fds=(theirs.fileno(), board_fd),
            stdin=subprocess.DEVNULL,
            # An accelerator belongs to the parent, and one thread is what one row needs.
            env={**os.environ, "JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1", **environ},
            process_group=0,  # Ctrl-C in the terminal is for the parent
        )
        theirs.close()

    def ask(self, kind: bytes, payload: bytes = b"") -> None:
        try:
            self.link.send(kind, payload)
        except HungUp:
            raise self._gone() from None
        self.owes += 1

    def answer(self) -> bytes:
        try:
            kind, payload = self.link.receive()
        except HungUp:
            raise self._gone() from None
        self.owes -= 1
        if kind != FAILED:
            return payload
        kind_of_error, text, trace = pickle.loads(payload)
        if trace:
            text = f"{self.name}: the worker process of {self._who()} failed with {text}"
        error = kind_of_error(text)
        if trace:
            error.add_note(trace)
        raise error

    def _gone(self) -> "_Ended":
        self.owes = 0
        self.end()
        code = self.process.returncode
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        self.ended = _Ended(f"{self.name}: the worker process of {self._who()} ended ({how}).")
        return self.ended

    def dismiss(self, error: SimulatorFault) -> None:
        """Let it go for what its simulator has raised."""
        self.owes = 0
        self.end()
        self.ended = _Ended(str(error))

    def _who(self) -> str:
        return f"seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"

    def hang_up(self) -> None:
        """It ends when it reads this."""
        self.link.sock.close()

    def end(self, patience: float = PATIENCE) -> None:
        """Wait for it to end, and insist."""
        self.hang_up()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _end_all(workers: list[_Worker], memory: "_Memory") -> None:
    memory.close()
    for worker in workers:
        worker.hang_up()
    deadline = time.monotonic() + PATIENCE
    for worker in workers:
        worker.end(max(0.0, deadline - time.monotonic()))


class _Memory:
    """A file descriptor of memory that has no name and ends with its last user."""

    fd = -1

    def open(self, size: int) -> None:
        """Have that many bytes."""
        if hasattr(os, "memfd_create"):
            self.fd = os.memfd_create("sombrl")
        else:
            with tempfile.TemporaryFile() as file:
                self.fd = os.dup(file.fileno())
        os.ftruncate(self.fd, size)

    def close(self) -> None:
        """Let the descriptor go; mappings of it stay."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


def _pickle_order(order: functools.partial, name: str) -> bytes:
    """What a worker is to make, or the sentence for what it could not import."""
    source = order.args[0]
    problem = getattr(source, "__module__", None) == "__main__"
    if not problem:
        try:
            return pickle.dumps(order)
        except Exception:
            problem = True
    raise SombrlError(
        f"{name}: a worker process must be able to make the environment by itself; give a name, or a function from "
        "a module of its own, or use env_workers 0."
    )
