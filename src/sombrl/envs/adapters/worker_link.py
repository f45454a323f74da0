"""Messages between a worker process and its parent: any Python objects, over a socket. Free of JAX."""

import pickle
import socket
import struct
import time
from typing import Any

SIZE = struct.Struct("=Q")  # the bytes of a message, in front of it
SPIN = 50e-6  # seconds of polling before sleeping: about what waking up costs


class HungUp(Exception):
    """The other side has closed the connection."""


class Link:
    """One end of the connection. What arrived before an interrupt is kept for the next `receive`."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self._buffer = bytearray()

    def send(self, message: Any) -> None:
        """Send one message; `HungUp` if nobody will read it."""
        content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        try:
            self.sock.sendall(SIZE.pack(len(content)) + content)
        except OSError:
            raise HungUp from None

    def receive(self) -> Any:
        """Wait for the next message; `HungUp` if there will be none."""
        end = SIZE.size
        while len(self._buffer) < end or len(self._buffer) < (end := SIZE.size + SIZE.unpack_from(self._buffer)[0]):
            self._buffer += self._read()
        content = bytes(self._buffer[SIZE.size : end])
        del self._buffer[:end]
        return pickle.loads(content)

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
