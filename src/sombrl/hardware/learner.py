"""The learner's process, `python -m sombrl.hardware.learner CAMPAIGN`, and the controller's view of it.

The folder is the whole conversation. A policy is missing when the episodes before it are committed and its file is not
there; it is trained, written, and the next one is waited for. A heartbeat file says twice a second what is going on.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sombrl.envs.trust import NO_WORD, Word, import_from_here
from sombrl.errors import RunFault, SombrlError
from sombrl.hardware.campaign import Campaign
from sombrl.hardware.files import read_json
from sombrl.hardware.registry import find_trainer, require_word
from sombrl.output import guarded
from sombrl.storage.files import write_whole
from sombrl.storage.provenance import provenance
from sombrl.storage.run_folder import RunFolder

POLL = 0.05  # seconds between two looks at the folder
BEAT = 0.5  # seconds between two heartbeats
NICE = 10  # the controller goes first wherever both want a core
ENDING = 5.0  # seconds that the process has to end when asked


class Lost(RunFault):
    """The learner is gone, and it is not known why."""


class LearnerClient:
    """A process that the controller has started, or a heartbeat that another one keeps up.

    `check` raises when no policy can be expected any more; otherwise it costs microseconds.
    """

    def __init__(self, campaign: Campaign, *, external: bool = False, patience: float = 60.0, word: Word = NO_WORD):
        """An `external` learner is started elsewhere and may be silent for `patience` seconds.

        Another is told the user's `word` about code that the campaign names.
        """
        self.campaign, self.external, self.patience = campaign, external, patience
        self.word = word
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = time.monotonic()
        self._beat: float | None = None

    def start(self) -> None:
        """Start it, if it is ours and not running."""
        if self.external or (self._process is not None and self._process.poll() is None):
            return
        self.campaign.learner.mkdir(exist_ok=True)
        RunFolder(self.campaign.learner).refuse_links()
        (self.campaign.learner / "heartbeat.json").unlink(missing_ok=True)  # of an earlier process
        cache = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # made when JAX is imported
        given = {} if cache is None else {"JAX_COMPILATION_CACHE_DIR": cache}  # the command line's, if any
        # -P: the current folder may be a stranger's; of code that the user has named it is looked for all the same.
        command = [sys.executable, "-P", "-m", "sombrl.hardware.learner", str(self.campaign.path)]
        command += ["--word", json.dumps(self.word.to_json())]
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
        beat = read_json(self.campaign.learner / "heartbeat.json") or {}
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            if beat.get("state") == "failed":
                fault = SombrlError if beat.get("code") == 2 else RunFault
                raise fault(str(beat["sentence"]))
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            raise Lost(f"the learner ended ({how}); its log is {self.campaign.learner / 'log.txt'}.")
        if beat and beat.get("time") != self._beat:
            self._beat, self._heard = beat.get("time"), time.monotonic()
        if time.monotonic() - self._heard > self.patience:
            raise Lost(
                f"no learner has been heard of for {self.patience:.0f} s: start "
                f"`python -m sombrl.hardware.learner {self.campaign.path}` (--trust, where it names code of yours)."
            )

    def forget_silence(self) -> None:
        """A policy is waited for from now on: what was before does not count."""
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


# ------------------------------------------------------------------------------------------- inside the process


class Heartbeat:
    """learner/heartbeat.json, kept fresh by a thread, also while a program compiles for minutes."""

    def __init__(self, campaign: Campaign, parent: int | None):
        self._path, self._parent = campaign.learner / "heartbeat.json", parent
        self._lock = threading.Lock()
        self._state: dict[str, Any] = {}
        self.say("starting")
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def say(self, state: str, episode: int | None = None, sentence: str | None = None, code: int | None = None) -> None:
        """What is going on from now on."""
        with self._lock:
            self._state = {"state": state, "episode": episode, "sentence": sentence, "code": code}
        self._write()

    def _write(self) -> None:
        """Whole or as before, and not synced: twice a second that would hold up other writers of the disk."""
        aside = self._path.with_name(f".tmp-{self._path.name}-{os.getpid()}")
        with self._lock, contextlib.suppress(OSError):  # a heartbeat that cannot be written is one that stops
            aside.write_text(json.dumps({"pid": os.getpid(), "time": time.time(), **self._state}))
            os.replace(aside, self._path)

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT)
            if self._parent is not None and os.getppid() != self._parent:
                os._exit(3)  # the controller is gone; the policy will be trained again
            self._write()


def serve(campaign: Campaign, heartbeat: Heartbeat, word: Word = NO_WORD) -> None:
    """Train every missing policy until the campaign is complete; `word` is what the user says about code it names."""
    require_word(campaign.config, word)
    trainer = find_trainer(campaign.config.trainer)
    while campaign.committed() < campaign.config.episodes:
        number = campaign.missing_policy()
        if number is None:
            time.sleep(POLL)
            continue
        heartbeat.say("training", number)
        start, config = time.perf_counter(), campaign.config
        episodes = campaign.episodes(number)
        actor, metrics = trainer.train(episodes, config, number, config.seed, campaign.learner)
        numbers = {name: float(np.asarray(value).reshape(-1)[0]) for name, value in metrics.items()}
        meta = {
            "number": number,
            "seed": config.seed,
            "trainer": config.trainer,
            "metrics": {name: value if np.isfinite(value) else None for name, value in numbers.items()},
            "seconds": round(time.perf_counter() - start, 3),
            "episodes": [episode.meta["digest"] for episode in episodes],
        }
        actor.save(campaign.policy_path(number), meta)
        heartbeat.say("waiting", number + 1)
    heartbeat.say("finished")


def main(argv: list[str] | None = None) -> int:
    """The process; 2 after a mistake of the caller, 1 after a fault, and the sentence is in the heartbeat."""
    parser = argparse.ArgumentParser(prog="python -m sombrl.hardware.learner", description=__doc__)
    parser.add_argument("campaign", type=Path, help="the campaign's folder")
    parser.add_argument("--parent", type=int, default=None, help="end when this process is gone")
    parser.add_argument("--trust", action="store_true", help="run whatever code the campaign names")
    parser.add_argument("--word", type=json.loads, default={}, help="the same in detail, from the controller")
    options = parser.parse_args(argv)
    word = Word(trust=True) if options.trust else Word.from_json(options.word)
    if word != NO_WORD:
        import_from_here()
    with contextlib.suppress(OSError):
        os.nice(NICE)
    if options.parent is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the controller
    heartbeat: Heartbeat | None = None
    try:
        campaign = Campaign.open(options.campaign)
        campaign.learner.mkdir(exist_ok=True)
        with campaign.lock_learner():
            heartbeat = Heartbeat(campaign, options.parent)
            write_whole(campaign.learner / "manifest.json", json.dumps(provenance(sys.argv), indent=2))
            serve(campaign, heartbeat, word)
        return 0
    except (SombrlError, RunFault) as error:
        return _fail(heartbeat, str(error), 2 if isinstance(error, SombrlError) else 1)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if os.environ.get("SOMBRL_DEBUG"):
            raise
        return _fail(heartbeat, f"the trainer failed with {type(error).__name__}: {error}", 1)


def _fail(heartbeat: Heartbeat | None, sentence: str, code: int) -> int:
    sentence = " ".join(sentence.split())
    if heartbeat is not None:
        heartbeat.say("failed", sentence=sentence, code=code)
    print(f"sombrl: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    with guarded():
        ended = main()
    sys.exit(ended)
