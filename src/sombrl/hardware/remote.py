"""A backend in another process, or on the machine that the radio is plugged into: lines of JSON over a socket.

`serve` answers for any backend; `RemoteBackend` is the other end. Ages travel instead of stamps, because two machines
have two clocks. A question that is not answered within a fraction of a period is an invalid frame or a refused command.
"""

import dataclasses
import json
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from sombrl.errors import RunFault, SombrlError
from sombrl.hardware.backend import Ack, CarBackend, Health, Observation, ResetMode
from sombrl.hardware.clocks import RealClock

PATIENCE = 0.01
"""Seconds that an answer may take while the car drives."""
RESET_PATIENCE = 900.0
"""Seconds that a reset may take: a person may have to carry the car."""


def serve(backend: CarBackend, address: str, *, stop_on_hang_up: bool = True, ready: threading.Event | None = None):
    """Answer one controller after the other, for ever. The car is stopped when one hangs up or is killed."""
    listener = _listen(address)
    if ready is not None:
        ready.set()
    with listener:
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines, suppress(OSError, ValueError):
                for line in lines:
                    connection.sendall(json.dumps(_answer(backend, json.loads(line))).encode() + b"\n")
            if stop_on_hang_up:
                backend.stop()


def _answer(backend: CarBackend, request: dict[str, Any]) -> dict[str, Any]:
    now, answer = backend.clock.now(), {"id": request["id"]}
    try:
        match request["call"]:
            case "observe":
                answer["observation"] = _to_json(backend.observe(), now)
            case "reset":
                observation = backend.reset(request["mode"], episode=request["episode"])
                answer["observation"] = _to_json(observation, backend.clock.now())
            case "command":
                ack = backend.command(request["steer"], request["throttle"], now - request["age"])
                answer["ack"] = dataclasses.asdict(ack)
            case "health":
                answer["health"] = backend.health().to_json()
            case "stop":
                backend.stop()
            case other:
                answer["error"] = f"the backend was asked for {other!r}, which it does not know."
    except (SombrlError, RunFault) as error:
        answer["error"] = str(error)
    return answer


def _to_json(observation: Observation, now: float) -> dict[str, Any]:
    return {
        "age": now - observation.stamp,
        "pose": observation.pose.tolist(),
        "twist": observation.twist.tolist(),
        "frame_id": observation.frame_id,
        "valid": observation.valid,
    }


class RemoteBackend(CarBackend):
    """The controller's end. `address` is host:port, or the path of a Unix socket."""

    def __init__(self, address: str, patience: float = PATIENCE):
        self.address, self.patience, self.clock = address, patience, RealClock()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._number = 0
        self._last = Observation(self.clock.now(), np.zeros(3), np.zeros(3), -1, False)

    def connect(self) -> None:
        """Call the other side."""
        family, where = _address(self.address)
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(5.0)
            self._socket.connect(where)
            if family != socket.AF_UNIX:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise SombrlError(f"no car answers at {self.address} ({error.strerror or error}): is it served?") from error

    def close(self) -> None:
        """Stop the car and hang up."""
        self.stop()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def reset(self, mode: ResetMode, *, episode: int = 0) -> Observation:
        """By the other side."""
        answer = self._ask(RESET_PATIENCE, call="reset", mode=mode, episode=episode)
        if answer is None:
            raise RunFault(f"the car at {self.address} does not answer.")
        if "error" in answer:
            raise RunFault(answer["error"])
        return self._seen(answer["observation"])

    def observe(self) -> Observation:
        """The newest frame, or the last one as invalid."""
        answer = self._ask(self.patience, call="observe")
        if answer is None or "observation" not in answer:
            return self._last.as_invalid()
        return self._seen(answer["observation"])

    def _seen(self, data: dict[str, Any]) -> Observation:
        stamp = self.clock.now() - data["age"]
        self._last = Observation(
            stamp, np.array(data["pose"]), np.array(data["twist"]), data["frame_id"], data["valid"]
        )
        return self._last

    def command(self, steer: float, throttle: float, stamp: float) -> Ack:
        """Sent with its age; without an answer it counts as refused."""
        age = self.clock.now() - stamp
        answer = self._ask(self.patience, call="command", steer=steer, throttle=throttle, age=age)
        return Ack(False, age) if answer is None or "ack" not in answer else Ack(**answer["ack"])

    def health(self) -> Health:
        """The other side's counters; none if it is silent."""
        answer = self._ask(1.0, call="health") or {}
        return Health(**answer.get("health", {}))

    def stop(self) -> None:
        """As well as the line allows; a car that hears nothing stops by itself."""
        with suppress(Exception):
            self._ask(self.patience, call="stop")

    def _ask(self, patience: float, **request: Any) -> dict[str, Any] | None:
        """The answer to this question; late answers to earlier ones are thrown away."""
        with self._lock:
            if self._socket is None:
                return None
            self._number += 1
            deadline = self.clock.now() + patience
            try:
                self._socket.settimeout(patience)
                self._socket.sendall(json.dumps({"id": self._number, **request}).encode() + b"\n")
                while True:
                    line, newline, rest = self._buffer.partition(b"\n")
                    if newline:
                        self._buffer = rest
                        answer = json.loads(line)
                        if answer["id"] == self._number:
                            return answer
                        continue
                    left = deadline - self.clock.now()
                    if left <= 0:
                        return None
                    self._socket.settimeout(left)
                    data = self._socket.recv(1 << 16)
                    if not data:
                        return None
                    self._buffer += data
            except (OSError, ValueError):
                return None


def _address(address: str) -> tuple[int, Any]:
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        return socket.AF_INET, (host or "localhost", int(port))
    return socket.AF_UNIX, address


def _listen(address: str) -> socket.socket:
    family, where = _address(address)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_UNIX:
            Path(where).unlink(missing_ok=True)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(1)
    except OSError as error:
        listener.close()
        raise SombrlError(f"cannot listen at {address}: {os.strerror(error.errno or 0)}.") from error
    return listener


def main(argv: list[str] | None = None) -> None:
    """Serve a backend: `python -m sombrl.hardware.remote ADDRESS BACKEND [name=value ...]`."""
    from sombrl.hardware.backends import make_backend

    argv = sys.argv[1:] if argv is None else argv
    if len(argv) < 2:
        sys.exit("usage: python -m sombrl.hardware.remote ADDRESS BACKEND [name=value ...]")
    sys.path.insert(0, os.getcwd())
    try:
        backend = make_backend(argv[1], tuple(argv[2:]))
        backend.connect()
        print(f"serving {argv[1]} at {argv[0]}", flush=True)
        serve(backend, argv[0])
    except (SombrlError, RunFault) as error:
        print(f"sombrl: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, SombrlError) else 1)
    except KeyboardInterrupt:
        backend.close()


if __name__ == "__main__":
    main()
