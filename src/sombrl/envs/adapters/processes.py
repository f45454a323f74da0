"""Host simulators in worker processes: the same rows, bit for bit, stepped side by side.

Actions and observations travel in shared memory without a name, so that nothing is left behind however a process
ends; one message over a socket pair wakes a worker, one answers. A worker that dies closes its end, so nobody
waits for it; a parent that dies closes the others', and they end too.
"""

import functools
import itertools
import json
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.envs.adapters.worker import CALL, FAILED, STEP, Board, HungUp, Link
from sombrl.envs.guards import check_count, check_seeds
from sombrl.envs.interface import AbstractEnvs, Step
from sombrl.envs.rows import Rows
from sombrl.errors import RunFault, SombrlError

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
        **options: Any,
    ):
        """`environ` are environment variables for the workers alone."""
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
        self._environ = dict(environ or {})
        self._rows = Rows(self.spec, self.seeds)
        self._workers: list[_Worker] = []
        self._closed = False

    def start(self) -> None:
        """Start the processes without waiting for them, so that other work can go on meanwhile."""
        if self._closed:
            raise SombrlError(f"{self.spec.name} was closed; make it again.")
        if self._workers:
            return
        shape = (len(self.seeds), self.spec.obs_dim, self.spec.action_dim)
        with _anonymous_memory(Board.size(*shape)) as fd:
            self._board = Board(fd, *shape)
            for (first, last), order in zip(self._spans, self._orders, strict=True):
                worker = _Worker(fd, self.spec.name, self.seeds[first:last], self._environ)
                self._workers.append(worker)
                worker.ask(CALL, pickle.dumps((first, last, shape, order)))
        self._end = weakref.finalize(self, _end_all, self._workers)

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
            self._rows.obs[slice(*self._spans[i])] = obs
        return self._rows.obs.copy()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Execute `actions` in [-1, 1] on the rows that are active."""
        at = self._rows
        actions, active = at.check_step(actions, active)
        board = self._board
        self._settle()
        board.actions[:], board.active[:] = actions, active
        asked = [w for w, (a, b) in zip(self._workers, self._spans, strict=True) if active[a:b].any()]
        for worker in asked:
            worker.ask(STEP)
        self._settle()
        at.obs[active] = board.obs[active]
        reward = np.where(active, board.reward, 0.0)
        terminated, truncated = active & board.terminated, active & board.truncated
        at.decisions[active] += 1
        at.over |= terminated | truncated
        return Step(at.obs.copy(), reward, terminated, truncated)

    def physical(self, actions: np.ndarray) -> np.ndarray:
        """As the adapter has it."""
        return self._sample.physical(actions)

    def get_state(self) -> dict[str, np.ndarray]:
        """What the adapter saves, of all rows."""
        states = list(self._call("get_state", {i: () for i in range(len(self._spans))}).values())
        return {key: _join([state[key] for state in states]) for key in states[0]}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `get_state`, here or of the adapter itself."""
        self._rows.check_state(state, {})
        spans = enumerate(self._spans)
        self._call("set_state", {i: ({k: v[first:last] for k, v in state.items()},) for i, (first, last) in spans})
        self._rows.set_state(state)

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
        for i, arguments in calls.items():
            self._workers[i].ask(CALL, pickle.dumps((method, arguments)))
        answers = self._settle()
        return {i: pickle.loads(answers[i]) for i in calls}

    def _settle(self) -> dict[int, bytes]:
        """Every answer still owed (also one whose wait was interrupted); the first failure is raised after all."""
        answers, failures = {}, []
        for i, worker in enumerate(self._workers):
            try:
                while worker.owes:
                    answers[i] = worker.answer()
            except (SombrlError, RunFault) as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return answers


class _Worker:
    """One process and the connection to it."""

    def __init__(self, board_fd: int, name: str, seeds: Sequence[int], environ: Mapping[str, str]):
        ours, theirs = socket.socketpair()
        self.link, self.name, self.seeds, self.owes = Link(ours), name, list(seeds), 0
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
        fault, text, trace = pickle.loads(payload)
        if trace:
            text = f"{self.name}: the worker process of {self._who()} failed with {text}"
        error = RunFault(text) if fault else SombrlError(text)
        if trace:
            error.add_note(trace)
        raise error

    def _gone(self) -> RunFault:
        self.owes = 0
        self.end()
        code = self.process.returncode
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return RunFault(f"{self.name}: the worker process of {self._who()} ended ({how}).")

    def _who(self) -> str:
        return f"seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"

    def hang_up(self) -> None:
        """It ends when it reads this."""
        self.link.sock.close()

    def end(self) -> None:
        """Wait for it to end, and insist."""
        self.hang_up()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _end_all(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.hang_up()
    for worker in workers:
        worker.end()


class _anonymous_memory:
    """A file descriptor of memory that has no name and ends with its last user."""

    def __init__(self, size: int):
        self._size = size

    def __enter__(self) -> int:
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create("sombrl")
        else:
            with tempfile.TemporaryFile() as file:
                self._fd = os.dup(file.fileno())
        os.ftruncate(self._fd, self._size)
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)  # the mapping stays


def _join(parts: list[np.ndarray]) -> np.ndarray:
    """Rows of all workers; histories of different lengths are filled up with zeros, as the adapter does."""
    if parts[0].ndim < 2 or len({part.shape[1:] for part in parts}) == 1:
        return np.concatenate(parts)
    longest = max(part.shape[1] for part in parts)
    widths = [[(0, 0), (0, longest - part.shape[1])] + [(0, 0)] * (part.ndim - 2) for part in parts]
    return np.concatenate([np.pad(part, width) for part, width in zip(parts, widths, strict=True)])


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
