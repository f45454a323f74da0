"""A backend in another process: the controller's end of a socket, and the command that serves a car at the other.

A question that is not answered within a fraction of a period is an invalid frame or a refused command, and so is an
answer that makes no sense. The other end is `server.py`.
"""

import contextlib
import dataclasses
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import numpy as np
from annotated_types import Gt

from sombrl.config.check import Configuration
from sombrl.config.json import from_json
from sombrl.errors import RunFault, SombrlError
from sombrl.hardware.addresses import connected, listening, read_address
from sombrl.hardware.backend import Ack, CarBackend, Health, Observation, RealClock, ResetMode
from sombrl.hardware.messages import (
    LONGEST_AGE,
    parse,
    to_ack,
    to_health,
    to_observation,
    to_sentence,
    write,
)
from sombrl.hardware.server import Server
from sombrl.hardware.supervisor import SupervisorConfig

PATIENCE = 0.01
"""Seconds that an answer may take while the car drives."""
CALLING = 5.0
"""Seconds that connecting may take."""
ENDING = 1.0
"""Seconds that the other side has to notice a hang-up."""
RESET_PATIENCE = 900.0
"""Seconds that a reset may take: a person may have to carry the car."""
LONGEST_ANSWER = 1 << 16
"""Bytes."""
USAGE = """usage: python -m sombrl.hardware.remote ADDRESS BACKEND [name=value ...]    serve a car
       python -m sombrl.hardware.remote ADDRESS stop                        stop a car that is served

ADDRESS is the path of a Unix socket, or 127.0.0.1:PORT. name=value are the options of the backend, and
supervisor.name=value the limits of the server's own supervisor: supervisor.speed_cap=2."""

Answer = TypeVar("Answer")


@dataclasses.dataclass(frozen=True)
class RemoteConfig(Configuration):
    """Where the car is, and how fast it answers."""

    address: str
    """The path of a Unix socket, or 127.0.0.1:PORT."""
    patience: Annotated[float, Gt(0)] = PATIENCE
    """Seconds that an answer may take while the car drives."""


class RemoteBackend(CarBackend):
    """The controller's end. `address` is that of the server, or the near end of an SSH tunnel to it."""

    def __init__(self, address: str, patience: float = PATIENCE):
        self.address, self.patience, self.clock = read_address(address), patience, RealClock()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._number = 0
        self._last = Observation(self.clock.now(), np.zeros(3), np.zeros(3), -1, False)

    def connect(self) -> None:
        """Call the other side, and be the one who drives."""
        try:
            self._socket = connected(self.address, CALLING)
        except OSError as error:
            reason = error.strerror or error
            raise SombrlError(f"no car answers at {self.address.text} ({reason}): is it served?") from error
        refused = self._ask(lambda answer: to_sentence(answer.get("error", "")), CALLING, call="drive")
        if refused != "":
            self._hang_up()
            raise SombrlError(f"the car at {self.address.text} cannot be driven: {refused or 'it does not answer.'}")

    def close(self) -> None:
        """Stop the car and hang up; the next one may drive when this returns."""
        self.stop()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
                self._socket.settimeout(ENDING)
                for _ in range(100):
                    if not self._socket.recv(LONGEST_ANSWER):
                        break
        self._hang_up()

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def reset(self, mode: ResetMode, *, episode: int = 0) -> Observation:
        """By the other side."""
        seen = self._ask(self._seen_or_error, RESET_PATIENCE, call="reset", mode=mode, episode=episode)
        if isinstance(seen, Observation):
            return seen
        silent = f"the car at {self.address.text} does not answer: it was stopped from elsewhere, or its server ended."
        raise RunFault(seen or silent)

    def observe(self) -> Observation:
        """The newest frame, or the last one as invalid."""
        return self._ask(self._seen, self.patience, call="observe") or self._last.as_invalid()

    def _seen(self, answer: dict[str, Any]) -> Observation:
        self._last = to_observation(answer["observation"], self.clock.now())
        return self._last

    def _seen_or_error(self, answer: dict[str, Any]) -> Observation | str:
        return to_sentence(answer["error"]) if "error" in answer else self._seen(answer)

    def command(self, steer: float, throttle: float, stamp: float) -> Ack:
        """Sent with its age; without an answer it counts as refused."""
        age = min(max(self.clock.now() - stamp, 0.0), LONGEST_AGE)
        command = {"call": "command", "steer": steer, "throttle": throttle, "age": age}
        return self._ask(lambda answer: to_ack(answer["ack"]), self.patience, **command) or Ack(False, age)

    def health(self) -> Health:
        """The other side's counters; zeros if it is silent."""
        return self._ask(lambda answer: to_health(answer["health"]), 1.0, call="health") or Health()

    def stop(self) -> None:
        """If the connection allows it; a server that hears nothing stops the car by itself, and so does the car."""
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
                self._socket.sendall(write({"id": self._number, **request}))
                while (left := deadline - self.clock.now()) > 0:
                    line, newline, rest = self._buffer.partition(b"\n")
                    if newline:
                        self._buffer = rest
                        answer = parse(line + newline)
                        if answer["id"] == self._number:
                            return read(answer)
                        continue
                    self._socket.settimeout(left)
                    data = self._socket.recv(LONGEST_ANSWER)
                    if not data or len(self._buffer) > LONGEST_ANSWER:
                        return None
                    self._buffer += data
            except Exception:  # a broken line, or an answer that makes no sense: for the car it is silence
                pass
            return None


def stop(address: str) -> None:
    """Stop a car that is served, even if another process drives it."""
    where = read_address(address)
    try:
        with connected(where, CALLING) as connection:
            connection.sendall(write({"id": 1, "call": "stop"}))
            answered = connection.recv(LONGEST_ANSWER)
    except OSError as error:
        raise RunFault(f"no car answers at {address} ({error.strerror or error}): use the switch.") from error
    if not answered:
        raise RunFault(f"the car at {address} did not answer: use the switch.")


def _end_in_order() -> None:
    """Signals that would end the process at once stop the car first; a second one does not disturb that."""

    def ended(number: int, frame: object) -> None:
        for each in listened:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    listened = [each for each in wanted if each == signal.SIGTERM or signal.getsignal(each) != signal.SIG_IGN]  # nohup
    for each in listened:
        signal.signal(each, ended)


def main(argv: list[str] | None = None) -> None:
    """Serve a backend, or stop one that is served."""
    from sombrl.hardware.registry import make_backend, read_options

    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return
    try:
        if len(argv) < 2:
            raise SombrlError("give ADDRESS and BACKEND: python -m sombrl.hardware.remote --help.")
        address = read_address(argv[0])
        if argv[1:] == ["stop"]:
            stop(argv[0])
            print(f"stopped the car at {argv[0]}")
            return
        own = tuple(option for option in argv[2:] if option.startswith("supervisor."))
        limits = read_options(own, "the server").get("supervisor", {})
        config = from_json(SupervisorConfig, limits, "supervisor.")
        backend = make_backend(argv[1], tuple(option for option in argv[2:] if option not in own))
        _end_in_order()
        with contextlib.suppress(KeyboardInterrupt), contextlib.closing(backend):
            server = Server(backend, config)
            with listening(address) as listener:
                backend.connect()
                print(f"serving {argv[1]} at {argv[0]}", flush=True)
                server.run(listener)
    except (SombrlError, RunFault) as error:
        print(f"sombrl: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, SombrlError) else 1)


if __name__ == "__main__":
    main()
