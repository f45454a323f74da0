"""The learner's process: `python -m sombrl.hardware.learner CAMPAIGN` trains whichever policy is missing.

The folder is the whole conversation. A policy is wanted when the episodes before it are committed and its file is not
there; it is trained, written, and the next one is waited for. A heartbeat file says twice a second what is going on.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from sombrl.hardware.campaign import Campaign
from sombrl.hardware.files import write_quickly
from sombrl.hardware.trainers import find_trainer, strict
from sombrl.records import RunFault, SombrlError
from sombrl.storage.files import write_whole
from sombrl.storage.provenance import provenance
from sombrl.storage.run_folder import RunFolder

POLL = 0.05  # seconds between two looks at the folder
BEAT = 0.5  # seconds between two heartbeats
NICE = 10  # the controller goes first wherever both want a core


class Heartbeat:
    """learner/heartbeat.json, kept fresh by a thread, also while a program compiles for minutes."""

    def __init__(self, campaign: Campaign, parent: int | None):
        self._path, self._parent = campaign.learner / "heartbeat.json", parent
        self._state: dict[str, Any] = {"state": "starting", "episode": None, "sentence": None, "code": None}
        self._lock = threading.Lock()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def say(self, state: str, episode: int | None = None, sentence: str | None = None, code: int | None = None) -> None:
        """What is going on from now on."""
        with self._lock:
            self._state = {"state": state, "episode": episode, "sentence": sentence, "code": code}
        self._write()

    def _write(self) -> None:
        with self._lock:
            write_quickly(self._path, {"pid": os.getpid(), "time": time.time(), **self._state})

    def _beat(self) -> None:
        while True:
            self._write()
            time.sleep(BEAT)
            if self._parent is not None and os.getppid() != self._parent:
                os._exit(3)  # whoever started this is gone; the policy will be trained again


def serve(campaign: Campaign, heartbeat: Heartbeat) -> None:
    """Train what is wanted until the campaign is complete."""
    trainer = find_trainer(campaign.config.trainer)
    while campaign.committed() < campaign.config.episodes:
        number = campaign.wanted()
        if number is None:
            time.sleep(POLL)
            continue
        heartbeat.say("training", number)
        start, config = time.perf_counter(), campaign.config
        episodes = campaign.episodes(number)
        actor, metrics = trainer.train(episodes, config, number, config.seed, campaign.learner)
        meta = {
            "number": number,
            "seed": config.seed,
            "trainer": config.trainer,
            "metrics": strict(metrics),
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
    options = parser.parse_args(argv)
    sys.path.insert(0, os.getcwd())  # for --trainer module:function
    with contextlib.suppress(OSError):
        os.nice(NICE)
    if options.parent is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the controller
    heartbeat: Heartbeat | None = None
    try:
        campaign = Campaign.open(options.campaign)
        campaign.learner.mkdir(exist_ok=True)
        with _alone(campaign):
            heartbeat = Heartbeat(campaign, options.parent)
            manifest = provenance(sys.argv)
            write_whole(campaign.learner / "manifest.json", json.dumps(manifest, indent=2))
            serve(campaign, heartbeat)
        return 0
    except (SombrlError, RunFault) as error:
        return _fail(heartbeat, str(error), 2 if isinstance(error, SombrlError) else 1)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if os.environ.get("SOMBRL_DEBUG"):
            raise
        return _fail(heartbeat, f"the trainer failed with {type(error).__name__}: {error}", 1)


@contextlib.contextmanager
def _alone(campaign: Campaign):
    """Be the only learner; one whose controller was killed needs a moment to notice."""
    deadline = time.monotonic() + 10.0
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(RunFolder(campaign.learner).lock())
                break
            except SombrlError:
                if time.monotonic() > deadline:
                    raise SombrlError(f"another learner works on {campaign.path}: only one may.") from None
                time.sleep(POLL)
        yield


def _fail(heartbeat: Heartbeat | None, sentence: str, code: int) -> int:
    sentence = " ".join(sentence.split())
    if heartbeat is not None:
        heartbeat.say("failed", sentence=sentence, code=code)
    print(f"sombrl: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
