"""The car's side of a socket: one controller drives, any connection may look, and any may stop.

Commands count only from the first connection that has asked to `drive`, until it hangs up, or says nothing for
`SILENCE` while another asks. A `stop` is served at once: it needs no turn, and from any other connection than the
driver's it ends the drive.

The server trusts no connection. It has a supervisor of its own, with the rules of the controller's (`supervisor.py`):
field, speed, and the ages of the newest frame and of the last command. The car is stopped when the driver hangs up or
falls silent, when a connection sends something that is not a question, when the backend raises, and when the server
ends.
"""

import contextlib
import dataclasses
import math
import socket
import threading
import time
from typing import Any

import numpy as np

from sombrl.errors import RunFault, SombrlError
from sombrl.hardware.addresses import at_once, listening, read_address
from sombrl.hardware.backend import Ack, CarBackend, Observation
from sombrl.hardware.messages import (
    LONGEST_AGE,
    LONGEST_LINE,
    Malformed,
    from_ack,
    from_observation,
    read_question,
    write,
)
from sombrl.hardware.notices import Notices
from sombrl.hardware.supervisor import Supervisor, SupervisorConfig

MOST_CALLERS = 16
"""Connections at once; one more, and the one silent for longest is closed."""
FRESH = 0.05
"""Seconds that the newest look at the car may be old when a command is judged."""
SILENCE = 2.0
"""Seconds without a word from the driver after which another may drive."""


def serve(
    backend: CarBackend,
    address: str,
    *,
    config: SupervisorConfig | None = None,
    ready: threading.Event | None = None,
) -> None:
    """Answer at this address, without end; whatever ends it stops the car."""
    with listening(read_address(address)) as listener:
        Server(backend, config).run(listener, ready)


class _CarFault(Exception):
    """The backend raised what it must not."""


class _NotDriving(Exception):
    """Somebody else's car."""


@dataclasses.dataclass(eq=False)
class Caller:
    """Somebody at the other end of a connection."""

    connection: socket.socket
    heard: float  # when it said something
    drove: bool = False
    unwanted: bool = False  # we hung up

    def hang_up(self) -> None:
        """Also if another thread reads from it."""
        self.unwanted = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class Server:
    """Answers callers, each in a thread of its own."""

    def __init__(self, backend: CarBackend, config: SupervisorConfig | None = None):
        if not backend.clock.real:
            raise SombrlError("a served car needs a clock that moves by itself: leave out clock=simulated.")
        self.backend, self.config = backend, SupervisorConfig() if config is None else config
        self.notices = Notices()
        # Commands come scaled by their controller; here the scale is a bound.
        self._supervisor = Supervisor(backend, dataclasses.replace(self.config, throttle_scale=1.0), self.notices)
        self._who = threading.Lock()  # of the two below; held for no call of the backend
        self._driver: Caller | None = None
        self._callers: dict[Caller, threading.Thread] = {}
        self._ended = False
        self._car = threading.RLock()  # of the backend's quick calls, except `stop`
        self._resets = threading.Lock()  # of its slow one
        self._watched = False  # whether the supervisor has begun a drive
        self._refusal: str | None = None
        self._seen: Observation | None = None
        self._seen_at = -math.inf

    def run(self, listener: socket.socket, ready: threading.Event | None = None) -> None:
        """Without end."""
        try:
            if ready is not None:
                ready.set()
            while True:
                try:
                    connection, _ = listener.accept()
                    self._admit(connection)
                except (OSError, RuntimeError) as error:  # no file or no thread is left
                    self.notices.say(f"could not answer a call: {error}")
                    time.sleep(0.1)
        finally:
            self.close()

    def close(self) -> None:
        """Stop the car for good, and hang up on everybody."""
        self._ended = True  # nothing drives from here on
        self._stop()
        with self._who:
            callers = dict(self._callers)
        for caller in callers:
            caller.hang_up()
        for thread in callers.values():  # one may have been about to send a command
            thread.join(0.5)
        with contextlib.suppress(Exception):
            self._supervisor.close()
        self.notices.close()

    # ------------------------------------------------------------------------------------------------ callers

    def _admit(self, connection: socket.socket) -> None:
        caller = Caller(connection, time.monotonic())
        thread = threading.Thread(target=self._talk, args=(caller,), daemon=True)
        with self._who:
            others = [other for other in self._callers if other is not self._driver]
            if len(self._callers) >= MOST_CALLERS:
                quietest = min(others, key=lambda other: other.heard)
                del self._callers[quietest]
                quietest.hang_up()
            self._callers[caller] = thread
        try:
            at_once(connection)
            thread.start()
        except BaseException:
            self._leave(caller)
            raise

    def _talk(self, caller: Caller) -> None:
        """Until it hangs up, or is hung up on."""
        fault = None
        try:
            with caller.connection.makefile("rb") as lines:
                while line := lines.readline(LONGEST_LINE + 1):
                    question = read_question(line)
                    caller.heard = time.monotonic()
                    caller.connection.sendall(write(self._answer(caller, question)))
        except Malformed as error:
            if not caller.unwanted:  # which cuts a line in two
                fault = f"a line that is not a question ({error})"
        except _CarFault as error:
            fault = str(error)
        except OSError:
            pass  # it hung up
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        finally:
            if fault is not None:
                self._stop()
            self._leave(caller)
            if fault is not None:
                self.notices.say(f"stopped the car and hung up after {fault}")

    def _leave(self, caller: Caller) -> None:
        with self._who:
            self._callers.pop(caller, None)
        if caller is self._driver:
            self._stop()
        if caller.drove and self._driver is None:
            self._end()
        caller.hang_up()
        caller.connection.close()

    def _take(self, caller: Caller) -> str | None:
        """Let a caller drive, or say why not."""
        with self._who:
            driver = self._driver
            if self._ended:
                return "the car is served no longer."
            if driver is caller:
                return None
            if driver is not None:
                if self._resets.locked() or time.monotonic() - driver.heard < SILENCE:
                    return "another controller drives this car: end it, or stop the car first."
                driver.hang_up()
            self._driver, caller.drove = caller, True
        self._silence()
        self._end()  # what the last driver may have left
        return None

    # ------------------------------------------------------------------------------------------------ stopping

    def _stop(self) -> bool:
        """Stop now, even while another connection drives, and end the drive; whether there was one.

        A command that is on its way is followed by another stop: the driver's thread notices the hang-up and leaves, or
        the next driver waits for it.
        """
        with self._who:
            driver, self._driver = self._driver, None
        self._silence()
        if driver is not None:
            driver.hang_up()
        return driver is not None

    def _silence(self) -> None:
        with contextlib.suppress(Exception):  # `stop` never raises, in a backend that keeps its word
            self.backend.stop()

    def _end(self) -> None:
        """The supervisor has nothing to watch until the next command."""
        with self._car:
            self._watched = False
            with contextlib.suppress(Exception):
                self._supervisor.end()

    # ------------------------------------------------------------------------------------------------ answers

    def _answer(self, caller: Caller, question: dict[str, Any]) -> dict[str, Any]:
        """What a question deserves."""
        call, answer = question["call"], {"id": question["id"]}
        try:
            if call == "stop":
                if caller is self._driver:
                    self._silence()
                    self._end()
                elif self._stop():
                    self.notices.say("a stop from somebody else ended the drive")
                return answer
            if call == "drive":
                error = self._take(caller)
                return answer if error is None else {**answer, "error": error}
            if call == "reset":
                return {**answer, "observation": self._reset(caller, question["mode"], question["episode"])}
            with self._car:
                if self._resets.locked():
                    return {**answer, "error": "the car is being put back to the start."}
                if call == "observe":
                    return {**answer, "observation": from_observation(self._look(), self.backend.clock.now())}
                if call == "health":
                    return {**answer, "health": dataclasses.asdict(self.backend.health())}
                return {**answer, "ack": from_ack(self._command(caller, **{name: question[name] for name in COMMAND}))}
        except _NotDriving:
            return {**answer, "error": "only who drives may ask for that."}
        except (SombrlError, RunFault) as error:
            self._silence()
            return {**answer, "error": str(error)}
        except Exception as error:
            raise _CarFault(f"the car failed in {call} with {type(error).__name__}: {error}") from error

    def _reset(self, caller: Caller, mode: Any, episode: int) -> dict[str, Any]:
        self._must_drive(caller)
        self._end()
        with self._resets:
            with self._car:
                pass  # who is looking has looked
            self._must_drive(caller)  # still: it may have waited for the last one's reset
            seen = self.backend.reset(mode, episode=episode)
        with self._car:
            self._seen, self._seen_at = seen, self.backend.clock.now()
            return from_observation(seen, self._seen_at)

    def _must_drive(self, caller: Caller) -> None:
        if caller is not self._driver:
            raise _NotDriving

    def _look(self) -> Observation:
        seen = self.backend.observe()
        self._seen, self._seen_at = seen, self.backend.clock.now()
        if self._watched and self._supervisor.look(seen) is not None:
            self._watched = False
        return seen

    def _command(self, caller: Caller, steer: float, throttle: float, age: float) -> Ack:
        """Sent to the car as it is, or not at all."""
        self._must_drive(caller)
        clock = self.backend.clock
        now = clock.now()
        if now - self._seen_at > FRESH:
            self._look()
        refusal: str | None = None
        if abs(throttle) > self.config.throttle_scale:
            refusal = f"throttle {throttle:.3g} is beyond this server's supervisor.throttle_scale"
        elif not self._watched and (refusal := self._unfit()) is None:
            assert self._seen is not None
            self._supervisor.begin(0, self._seen, now)
            self._watched = True
        if refusal != self._refusal:
            self._refusal = refusal
            self.notices.say("commands are sent again" if refusal is None else f"commands are refused: {refusal}")
        if refusal is not None:
            self._silence()
            return Ack(steer == throttle == 0.0, age)  # neutral is what it got
        action = np.array([steer, throttle])
        sent = self._supervisor.act(action, now - age)
        accepted = sent.reason != "late-command" and np.array_equal(sent.action, action)
        return Ack(bool(accepted), min(age, LONGEST_AGE))

    def _unfit(self) -> str | None:
        """Why the car may not be driven off, as it was seen last."""
        seen = self._seen
        if seen is None or not (seen.valid and np.isfinite(seen.pose).all() and np.isfinite(seen.twist).all()):
            return "motion capture does not see the car"
        if not self.config.inside(seen):
            return "the car is outside the field"
        return None


COMMAND = ("steer", "throttle", "age")
