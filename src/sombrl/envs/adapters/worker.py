"""The child's side of `processes.py`: build some rows, then answer until the parent hangs up. Free of JAX."""

import mmap
import pickle
import signal
import socket
import struct
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from sombrl.envs.interface import AbstractEnvs
from sombrl.errors import RunFault, SimulatorFault, SombrlError

HEADER = struct.Struct("=cQ")
STEP, CALL, DONE, FAILED = b"s", b"c", b"d", b"f"
SPIN = 50e-6  # seconds of asking again before sleeping: about what waking up costs


class HungUp(Exception):
    """The other side is gone."""


class Link:
    """Messages over a stream socket. What arrived before an interrupt is kept for the next `receive`."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self._buffer = bytearray()

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        """One message; `HungUp` if nobody will read it."""
        try:
            self.sock.sendall(HEADER.pack(kind, len(payload)) + payload)
        except OSError:
            raise HungUp from None

    def receive(self) -> tuple[bytes, bytes]:
        """The next message, waiting for it; `HungUp` if there will be none."""
        missing = HEADER.size
        while len(self._buffer) < missing or len(self._buffer) < (missing := self._message_size()):
            self._buffer += self._read()
        kind = bytes(self._buffer[:1])
        payload = bytes(self._buffer[HEADER.size : missing])
        del self._buffer[:missing]
        return kind, payload

    def _message_size(self) -> int:
        return HEADER.size + HEADER.unpack_from(self._buffer)[1]

    def _read(self) -> bytes:
        deadline = time.perf_counter() + SPIN
        try:
            while time.perf_counter() < deadline:
                try:
                    data = self.sock.recv(1 << 16, socket.MSG_DONTWAIT)
                    break
                except BlockingIOError:
                    continue
            else:
                data = self.sock.recv(1 << 16)
        except OSError:
            raise HungUp from None
        if not data:
            raise HungUp
        return data


class Board:
    """The arrays that parent and children share, views of one anonymous piece of memory."""

    def __init__(self, fd: int, seeds: int, obs_dim: int, action_dim: int, obs_dtype: str):
        self.memory = mmap.mmap(fd, self.size(seeds, obs_dim, action_dim, obs_dtype))
        offset = 0

        def view(dtype: Any, *shape: int) -> np.ndarray:
            nonlocal offset
            array = np.ndarray(shape, dtype, self.memory, offset)
            offset += array.nbytes
            return array

        # The widest numbers first, so that each lies where its type wants to.
        self.reward, self.actions = view(np.float64, seeds), view(np.float32, seeds, action_dim)
        self.obs = view(obs_dtype, seeds, obs_dim)
        self.active, self.terminated, self.truncated = (view(np.bool_, seeds) for _ in range(3))

    @staticmethod
    def size(seeds: int, obs_dim: int, action_dim: int, obs_dtype: str) -> int:
        """Bytes in all."""
        return seeds * (8 + 4 * action_dim + np.dtype(obs_dtype).itemsize * obs_dim + 3)


def serve(link_fd: int, board_fd: int) -> None:
    """The life of a worker. Its first message says what to make; an end of the connection ends it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # for the parent, who still needs this process, and then hangs up
    link = Link(socket.socket(fileno=link_fd))
    envs: AbstractEnvs | None = None
    try:
        first, last, shape, make = pickle.loads(link.receive()[1])
        board, rows = Board(board_fd, *shape), slice(first, last)
        envs = _answer(link, lambda: pickle.loads(make)())
        while envs is not None:
            kind, payload = link.receive()
            if kind == STEP:
                _answer(link, lambda: _step(envs, board, rows))
            else:
                method, arguments = pickle.loads(payload)
                _answer(link, lambda: getattr(envs, method)(*arguments), result=True)  # noqa: B023
    except HungUp:
        pass
    finally:
        if envs is not None:
            envs.close()


def _step(envs: AbstractEnvs, board: Board, rows: slice) -> None:
    step = envs.step(board.actions[rows], board.active[rows])
    board.obs[rows], board.reward[rows] = step.obs, step.reward
    board.terminated[rows], board.truncated[rows] = step.terminated, step.truncated


def _answer(link: Link, call: Callable[[], Any], result: bool = False) -> Any:
    """Do it and say how it went: any failure becomes a sentence for the parent."""
    try:
        value = call()
    except (SombrlError, RunFault) as error:
        kind = next(kind for kind in (SimulatorFault, RunFault, SombrlError) if isinstance(error, kind))
        link.send(FAILED, pickle.dumps((kind, str(error), "")))
    except Exception as error:
        text = f"{type(error).__name__}: {error}".split("\n")[0]
        link.send(FAILED, pickle.dumps((SimulatorFault, text, traceback.format_exc())))
    else:
        link.send(DONE, pickle.dumps(value) if result else b"")
        return value
    return None
