"""The child's side of `processes.py`: make the environments of some rows, then answer until the parent hangs up."""

import functools
import pickle
import signal
import socket
import traceback
from collections.abc import Callable
from typing import Any

from sombrl.envs.adapters.worker_link import HungUp, Link, StepBytes
from sombrl.envs.interface import AbstractEnvs
from sombrl.errors import RunFault, SimulatorFault, SombrlError
from sombrl.optional import first_line


def serve(link_fd: int) -> None:
    """The life of a worker. The first message says what to make; the end of the connection ends it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # for the parent, who still needs this process, and then hangs up
    link = Link(socket.socket(fileno=link_fd))
    envs: AbstractEnvs | None = None

    def make() -> None:
        nonlocal envs
        envs = pickle.loads(order)()

    try:
        who, order = link.receive()
        link.send(_try(make, who))
        if envs is not None:
            _answer_calls(link, envs, who)
    except HungUp:
        pass
    finally:
        if envs is not None:
            envs.close()


def _answer_calls(link: Link, envs: AbstractEnvs, who: str) -> None:
    """Answer a decision, which comes as bytes, by bytes, and any other call by its result or what it raised."""
    code = StepBytes(envs.spec, len(envs.seeds))
    while True:
        call = link.receive()
        if isinstance(call, bytes):
            step, error = _try(functools.partial(envs.step, *code.unpack_call(call)), who)
            link.send((None, error) if error else code.pack_result(step))
        else:
            method, arguments = call
            link.send(_try(functools.partial(getattr(envs, method), *arguments), who))


def _try(call: Callable[[], Any], who: str) -> tuple[Any, Exception | None]:
    """The result of a call, or what it raised as an exception of ours, for the parent to raise."""
    try:
        return call(), None
    except (SombrlError, RunFault) as error:
        kind = next(kind for kind in (SimulatorFault, RunFault, SombrlError) if isinstance(error, kind))
        return None, kind(str(error))
    except Exception as error:
        fault = SimulatorFault(f"{who} failed with {first_line(error)}")
        fault.add_note(traceback.format_exc())
        return None, fault
