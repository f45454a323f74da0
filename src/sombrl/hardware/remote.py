"""A backend in another process, or on the machine that the radio is plugged into: lines of JSON over a socket.

`serve` answers for any backend; `RemoteBackend` is the other end. Ages travel instead of stamps, because two machines
have two clocks. A question that is not answered within a fraction of a period is an invalid frame or a refused command.
"""

import contextlib
import dataclasses
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sombrl.errors import RunFault, SombrlError
from sombrl.hardware.backend import Ack, CarBackend, Health, Observation, RealClock, ResetMode

PATIENCE = 0.01
"""Seconds that an answer may take while the car drives."""
RESET_PATIENCE = 900.0
"""Seconds that a reset may take: a person may have to carry the car."""

Answer = TypeVar("Answer")


def serve(
    backend: CarBackend, address: str, *, stop_on_hang_up: bool = True, ready: threading.Event | None = None
) -> None:
    """Answer one controller after the other, for ever. The car is stopped when one hangs up, is killed, or sends
    something that is not a question."""
    with _listen(address) as listener:
        if ready is not None:
            ready.set()
        while True:
            connection, _ = listener.accept()
            try:
                with connection, connection.makefile("rb") as lines:
                    for line in lines:
                        connection.sendall(answer_line(backend, line))
            except OSError:
                pass  # it hung up
            except Exception as error:  # of a malformed line or of the driver: the next controller is answered again
                print(f"sombrl: hung up after {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                if stop_on_hang_up:
                    backend.stop()


def answer_line(backend: CarBackend, line: bytes) -> bytes:
    """The answer to a question, both a line of JSON."""
    request = json.loads(line)
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
                answer["health"] = dataclasses.asdict(backend.health())
            case "stop":
                backend.stop()
            case other:
                answer["error"] = f"the backend was asked for {other!r}, which it does not know."
    except (SombrlError, RunFault) as error:
        answer["error"] = str(error)
    return json.dumps(answer).encode() + b"\n"


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
            self.close()
            raise SombrlError(f"no car answers at {self.address} ({error.strerror or error}): is it served?") from error

    def close(self) -> None:
        """Stop the car and hang up."""
        self.stop()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def reset(self, mode: ResetMode, *, episode: int = 0) -> Observation:
        """By the other side."""
        seen = self._ask(self._seen_or_error, RESET_PATIENCE, call="reset", mode=mode, episode=episode)
        if isinstance(seen, Observation):
            return seen
        raise RunFault(seen or f"the car at {self.address} does not answer.")

    def observe(self) -> Observation:
        """The newest frame, or the last one as invalid."""
        return self._ask(self._seen, self.patience, call="observe") or self._last.as_invalid()

    def _seen(self, answer: dict[str, Any]) -> Observation:
        data = answer["observation"]
        pose, twist = (np.array(data[name], float).reshape(3) for name in ("pose", "twist"))
        stamp = self.clock.now() - data["age"]
        self._last = Observation(stamp, pose, twist, int(data["frame_id"]), bool(data["valid"]))
        return self._last

    def _seen_or_error(self, answer: dict[str, Any]) -> Observation | str:
        return str(answer["error"]) if "error" in answer else self._seen(answer)

    def command(self, steer: float, throttle: float, stamp: float) -> Ack:
        """Sent with its age; without an answer it counts as refused."""
        age = self.clock.now() - stamp
        command = {"call": "command", "steer": steer, "throttle": throttle, "age": age}
        return self._ask(lambda answer: Ack(**answer["ack"]), self.patience, **command) or Ack(False, age)

    def health(self) -> Health:
        """The other side's counters; zeros if it is silent."""
        return self._ask(lambda answer: Health(**answer["health"]), 1.0, call="health") or Health()

    def stop(self) -> None:
        """If the connection allows it; a car that hears nothing stops by itself."""
        with contextlib.suppress(Exception):
            self._ask(lambda answer: None, self.patience, call="stop")

    def _ask(self, read: Callable[[dict[str, Any]], Answer], patience: float, **request: Any) -> Answer | None:
        """What `read` makes of the answer to this question; late answers to earlier ones are thrown away.

        None for no answer in time and for one that makes no sense.
        """
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
                            return read(answer)
                        continue
                    left = deadline - self.clock.now()
                    if left <= 0:
                        return None
                    self._socket.settimeout(left)
                    data = self._socket.recv(1 << 16)
                    if not data:
                        return None
                    self._buffer += data
            except Exception:  # a broken line, or an answer that makes no sense: for the car it is silence
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
        if family != socket.AF_UNIX:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        elif Path(where).is_socket():  # of an earlier process; any other file is refused by `bind`
            Path(where).unlink()
        listener.bind(where)
        listener.listen(1)
    except OSError as error:
        listener.close()
        raise SombrlError(f"cannot listen at {address}: {os.strerror(error.errno or 0)}.") from error
    return listener


def main(argv: list[str] | None = None) -> None:
    """Serve a backend: `python -m sombrl.hardware.remote ADDRESS BACKEND [name=value ...]`."""
    from sombrl.hardware.registry import make_backend

    argv = sys.argv[1:] if argv is None else argv
    if len(argv) < 2:
        sys.exit("usage: python -m sombrl.hardware.remote ADDRESS BACKEND [name=value ...]")
    sys.path.insert(0, os.getcwd())
    try:
        with contextlib.suppress(KeyboardInterrupt), contextlib.closing(make_backend(argv[1], tuple(argv[2:]))) as car:
            car.connect()
            print(f"serving {argv[1]} at {argv[0]}", flush=True)
            serve(car, argv[0])
    except (SombrlError, RunFault) as error:
        print(f"sombrl: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, SombrlError) else 1)


if __name__ == "__main__":
    main()
