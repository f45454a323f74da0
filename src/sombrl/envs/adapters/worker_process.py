"""The parent's side of one worker process: start it, ask, wait for the answer, end it."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sombrl.envs.adapters import worker_boot
from sombrl.envs.adapters.worker_link import HungUp, Link
from sombrl.errors import RunFault

PATIENCE = 5.0  # seconds that a worker has to end by itself


class WorkerProcess:
    """Makes environments by a pickled `order` in a process of its own, then calls their methods; `who` names it."""

    def __init__(self, who: str, order: bytes, environ: Mapping[str, str]):
        ours, theirs = socket.socketpair()
        self.link, self.who = Link(ours), who
        self.owes = 0  # answers that have not come yet
        self.steps = 0  # decisions so far
        self.replaces = False  # whether it took the place of one that died
        self.ended: RunFault | None = None  # why it is gone
        package = Path(worker_boot.__file__).parents[2]
        arguments = json.dumps([theirs.fileno(), sys.path, str(package)])
        with theirs:
            self.process = subprocess.Popen(
                # -P: without the folder of that script on the path, which has a gymnasium.py of ours.
                [sys.executable, "-P", worker_boot.__file__, arguments],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                # An accelerator belongs to the parent, and one thread is what one row needs.
                env={**os.environ, "JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1", **environ},
                process_group=0,  # Ctrl-C in the terminal is for the parent
            )
        self._send((who, order))

    def ask(self, method: str, *arguments: Any) -> None:
        """Call a method of its environments; a process that is gone is noted in `ended`."""
        self._send((method, arguments))

    def ask_step(self, call: bytes) -> None:
        """Ask for a decision (`StepBytes`)."""
        self._send(call)

    def _send(self, message: Any) -> None:
        try:
            self.link.send(message)
            self.owes += 1
        except HungUp:
            self._note_end()

    def answer(self) -> Any:
        """Wait for the result of a call; raises what it raised there, or `ended` if the process is gone."""
        try:
            message = self.link.receive()
        except HungUp:
            raise self._note_end() from None
        self.owes -= 1
        if isinstance(message, bytes):
            return message
        result, error = message
        if error is not None:
            raise error
        return result

    def dismiss(self, reason: RunFault) -> None:
        """End it because of what its simulator raised."""
        self.owes, self.ended = 0, RunFault(str(reason))
        self.end()

    def _note_end(self) -> RunFault:
        self.end()
        code = self.process.returncode
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        self.owes, self.ended = 0, RunFault(f"{self.who} ended ({how}).")
        return self.ended

    def hang_up(self) -> None:
        """Close the connection, which ends the process when it reads next."""
        self.link.sock.close()

    def end(self, patience: float = PATIENCE) -> None:
        """Hang up and wait; a process that has not ended by then is killed."""
        self.hang_up()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
