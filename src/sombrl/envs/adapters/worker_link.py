"""Messages between a worker process and its parent: any Python objects, over a socket. Free of JAX."""

import pickle
import socket
import struct
import time
from typing import Any

import numpy as np

from sombrl.envs.interface import EnvSpec, Step

HEADER = struct.Struct("=?Q")  # whether a message is pickled, and its bytes
SPIN = 50e-6  # seconds of polling before sleeping: about what waking up costs


class HungUp(Exception):
    """The other side has closed the connection."""


class Link:
    """One end of the connection. What arrived before an interrupt is kept for the next `receive`."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self._buffer = bytearray()

    def send(self, message: Any) -> None:
        """Send one message, bytes as they are; `HungUp` if the other end has closed."""
        pickled = not isinstance(message, bytes)
        content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL) if pickled else message
        try:
            self.sock.sendall(HEADER.pack(pickled, len(content)) + content)
        except OSError:
            raise HungUp from None

    def receive(self) -> Any:
        """Wait for the next message; `HungUp` if there will be none."""
        start = end = HEADER.size
        while len(self._buffer) < end or len(self._buffer) < (end := start + HEADER.unpack_from(self._buffer)[1]):
            self._buffer += self._read()
        content = bytes(self._buffer[start:end])
        pickled = HEADER.unpack_from(self._buffer)[0]
        del self._buffer[:end]
        return pickle.loads(content) if pickled else content

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


class StepBytes:
    """One decision of some rows as plain bytes: to pickle it takes as long as a small simulator's step."""

    def __init__(self, spec: EnvSpec, rows: int):
        self._call = [(np.dtype(np.float32), (rows, spec.action_dim)), (np.dtype(bool), (rows,))]
        self._result = [
            (spec.obs_dtype, (rows, spec.obs_dim)),
            (np.dtype(np.float64), (rows,)),
            (np.dtype(bool), (rows,)),
            (np.dtype(bool), (rows,)),
            (np.dtype(np.float64), (rows,)),
        ]

    def pack_call(self, actions: np.ndarray, active: np.ndarray) -> bytes:
        """The arguments of `AbstractEnvs.step`."""
        return _pack(self._call, (actions, active))

    def unpack_call(self, content: bytes) -> tuple[np.ndarray, ...]:
        """The inverse of `pack_call`."""
        return _unpack(self._call, content)

    def pack_result(self, step: Step) -> bytes:
        """What it returns."""
        cost = np.full(len(step.reward), np.nan) if step.cost is None else step.cost
        return _pack(self._result, (step.obs, step.reward, step.terminated, step.truncated, cost))

    def unpack_result(self, content: bytes) -> Step:
        """The inverse of `pack_result`."""
        return Step(*_unpack(self._result, content))


_Layout = list[tuple[np.dtype, tuple[int, ...]]]


def _pack(layout: _Layout, arrays: tuple[np.ndarray, ...]) -> bytes:
    return b"".join(np.asarray(array, dtype).tobytes() for array, (dtype, _) in zip(arrays, layout, strict=True))


def _unpack(layout: _Layout, content: bytes) -> tuple[np.ndarray, ...]:
    arrays, offset = [], 0
    for dtype, shape in layout:
        number = int(np.prod(shape))
        arrays.append(np.frombuffer(content, dtype, number, offset).reshape(shape))
        offset += number * dtype.itemsize
    return tuple(arrays)
