"""The controller's view of the learner: a process that it started, or a heartbeat somebody else keeps up."""

import os
import signal
import subprocess
import sys
import time

import jax

from sombrl.errors import RunFault, SombrlError
from sombrl.hardware.campaign import Campaign
from sombrl.hardware.files import read_json

ENDING = 5.0  # seconds that the process has to end when asked


class LearnerClient:
    """`check` raises when no policy can be expected any more; otherwise it costs microseconds."""

    def __init__(self, campaign: Campaign, *, external: bool = False, patience: float = 60.0):
        """An `external` learner is started by somebody else and may be silent for `patience` seconds."""
        self.campaign, self.external, self.patience = campaign, external, patience
        self._process: subprocess.Popen | None = None
        self._heard = time.monotonic()
        self._beat: float | None = None

    def start(self) -> None:
        """Start it, if it is ours and not running."""
        if self.external or (self._process is not None and self._process.poll() is None):
            return
        self.campaign.learner.mkdir(exist_ok=True)
        (self.campaign.learner / "heartbeat.json").unlink(missing_ok=True)  # of an earlier process
        cache = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # made when JAX is imported
        given = {} if cache is None else {"JAX_COMPILATION_CACHE_DIR": cache}  # the command line's, if any
        command = [sys.executable, "-m", "sombrl.hardware.learner", str(self.campaign.path)]
        with open(self.campaign.learner / "log.txt", "ab") as log:
            self._process = subprocess.Popen(
                [*command, "--parent", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                env={**given, **os.environ},
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C in the terminal is for the controller
            )

    def check(self) -> None:
        """Raise `Lost` if it is gone or silent, and its own sentence if it has failed."""
        beat = read_json(self.campaign.learner / "heartbeat.json")
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            if beat is not None and beat.get("state") == "failed":
                fault = SombrlError if beat.get("code") == 2 else RunFault
                raise fault(str(beat["sentence"]))
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            raise Lost(f"the learner ended ({how}); its log is {self.campaign.learner / 'log.txt'}.")
        if beat is not None and beat.get("time") != self._beat:
            self._beat, self._heard = beat.get("time"), time.monotonic()
        if time.monotonic() - self._heard > self.patience:
            raise Lost(
                f"no learner has been heard of for {self.patience:.0f} s: start "
                f"`python -m sombrl.hardware.learner {self.campaign.path}`."
            )

    def patiently(self) -> None:
        """Forget silence from before: a policy is waited for from now on."""
        self._heard = time.monotonic()

    def close(self) -> None:
        """End the process, if it is ours."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Lost(RunFault):
    """The learner is gone, and it is not known why."""
