"""`sombrl hardware run | status | check`: the command line of this folder."""

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Annotated, Literal

import jax
import tyro

from sombrl.config.suggestions import nearest
from sombrl.envs.trust import NO_WORD, Word, import_from_here
from sombrl.errors import SombrlError
from sombrl.hardware.campaign import Campaign, CampaignConfig, is_campaign, refuse_other
from sombrl.hardware.controller import Controller, Stopped
from sombrl.hardware.episode import Episode, check_log
from sombrl.hardware.files import EventLog, read_json
from sombrl.hardware.learner import LearnerClient
from sombrl.hardware.policy import Actor
from sombrl.hardware.registry import find_trainer, make_backend, read_options, require_word
from sombrl.runs.train import Interrupted

USAGE = """usage: sombrl hardware run CAMPAIGN [options]      drive and learn; a new campaign, or one that goes on
       sombrl hardware status CAMPAIGN             what is there, and what comes next
       sombrl hardware check EPISODE.npz           whether a recorded episode says what it should
"""


@dataclasses.dataclass(frozen=True)
class Learning:
    """What learns; may differ each time a campaign goes on."""

    learner: Literal["start", "external"] = "start"
    """Start the learner's process, or wait for one that was started elsewhere on the same folder."""
    learner_restarts: int = 1
    """How often per policy a learner that died is started again; 0: stop, to be resumed."""
    learner_patience: float = 60.0
    """external: seconds without a heartbeat after which the campaign stops."""
    trust: bool = False
    """Run whatever code the campaign's file names: a backend or trainer module:name, an environment module:Id."""


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Drive and learn, episode after episode. Ctrl-C, or a file STOP in the folder, stops the car within a period."""

    config: Annotated[CampaignConfig, tyro.conf.arg(name="")]
    learning: Annotated[Learning, tyro.conf.arg(name="")]


def hardware(argv: list[str]) -> None:
    """Sombrl hardware run | status | check."""
    commands = {"run": run, "status": status, "check": check}
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        _parse(["--help"], CampaignConfig())
        return
    if argv[0] not in commands:
        raise nearest(argv[0], commands, "hardware command", see="sombrl hardware --help")
    if len(argv) < 2 or argv[1] in ("-h", "--help"):
        return hardware([])
    commands[argv[0]](Path(argv[1]), argv[2:], ["sombrl", "hardware", *argv])


def run(path: Path, argv: list[str], command: list[str]) -> None:
    """Drive a campaign to its end, or to the operator's stop."""
    if str(path).startswith("-"):
        raise SombrlError("give the campaign's folder first: sombrl hardware run CAMPAIGN [options].")
    # The accelerator, and its memory, are the learner's.
    jax.config.update("jax_platforms", "cpu")
    found = is_campaign(path)
    if not found:
        refuse_other(path)
    options = _parse(argv, Campaign(path).config if found else CampaignConfig())
    config = options.config
    if found:
        Campaign(path).require_same(config)
        word = _word(config, argv, options.learning.trust)
        require_word(config, word)
    else:
        word = Word(trust=True)  # all of it was typed just now
    if _foreign(config):
        import_from_here()
    backend = make_backend(config.backend, config.backend_options)
    trainer = find_trainer(config.trainer)
    if not found:
        trainer.check(config)
    if config.reset_policy is not None:
        Actor.load(Path(config.reset_policy))
    with contextlib.closing(backend):
        backend.connect()
        campaign = Campaign.open(path) if found else Campaign.create(path, config, command)
        with campaign.lock():
            if config.episodes != campaign.config.episodes:
                campaign.extend(config.episodes)
            if campaign.committed() >= config.episodes:
                raise SombrlError(f"{path} is complete ({config.episodes} episodes): give more with --episodes.")
            who = options.learning
            external, patience = who.learner == "external", who.learner_patience
            learner = LearnerClient(campaign, external=external, patience=patience, word=word)
            try:
                Controller(campaign, backend, learner, who.learner_restarts).run()
            except Stopped as stop:
                done = campaign.committed()
                raise Interrupted(
                    f"{stop}; {done} of {config.episodes} episodes are committed; continue with: "
                    f"sombrl hardware run {path}{' --trust' if _foreign(config) else ''}"
                ) from None
    print(f"done: {path}  (sombrl hardware status {path})")


def status(path: Path, argv: list[str], command: list[str]) -> None:
    """Print what is there, and what comes next."""
    _no_options(argv)
    campaign = Campaign.open(path)
    config, committed = campaign.config, campaign.committed()
    events = EventLog.read(campaign.events_path)
    print(
        f"{path}: {config.backend}, {config.trainer}, {committed} of {config.episodes} episodes of {config.steps} steps"
    )
    rows = {row["iteration"]: row for row in campaign.folder.rows()}
    for n, episode in enumerate(campaign.episodes(committed)):
        timing, row = episode.timing(), rows.get(n, {})
        print(
            f"  {n:3d}  return {episode.total_reward:8.3f}  {episode.end:<16}  {int(episode.valid.sum()):4d} "
            f"transitions  {row.get('safety/interventions', 0):3d} interventions  late p50 {timing['late_p50_ms']:.2f} "
            f"p99 {timing['late_p99_ms']:.2f} max {timing['late_max_ms']:.2f} ms  overruns {timing['overruns']:.0f}"
        )
    if committed >= config.episodes:
        print("complete")
    elif campaign.policy_path(committed).exists():
        print(f"next: drive episode {committed}")
    else:
        print(f"next: train policy {committed}")
    beat = read_json(campaign.learner / "heartbeat.json")
    if beat is not None:
        said = f": {beat['sentence']}" if beat.get("sentence") else ""
        print(f"learner: {beat.get('state')}{said}, heard of {time.time() - beat.get('time', 0.0):.0f} s ago")
    for event in [row for row in events if row["event"] in ("abort", "learner-lost", "discarded")][-5:]:
        print(f"{event['time']}  {event['event']}  episode {event.get('episode')}: {event.get('reason')}")


def check(path: Path, argv: list[str], command: list[str]) -> None:
    """Print what a recorded episode says about encoder, stack, period, frame and delay."""
    _no_options(argv)
    findings = check_log(Episode.load(path))
    for level, sentence in findings:
        print(f"{level:<8} {sentence}")
    if any(level == "error" for level, _ in findings):
        raise SombrlError(f"{path} is not what the loop should have recorded: see the errors above.")


def _word(config: CampaignConfig, argv: list[str], trust: bool) -> Word:
    """What the user says about code: the options that are on this command line were not taken from the file."""
    typed = {text.partition("=")[0].replace("_", "-") for text in argv if text.startswith("--")}
    given = [getattr(config, part) for part in ("backend", "trainer") if f"--{part}" in typed]
    if "--trainer-options" in typed:
        given.append(str(read_options(config.trainer_options, "--trainer-options").get("env", "")))
    return Word.of(trust, *given)


def _foreign(config: CampaignConfig) -> bool:
    """Whether a campaign names code that is not sombrl's."""
    try:
        require_word(config, NO_WORD)
    except SombrlError:
        return True
    return False


def _no_options(argv: list[str]) -> None:
    if argv:
        raise SombrlError(f"this command takes no options, not {argv[0]!r}.")


def _parse(argv: list[str], config: CampaignConfig) -> RunOptions:
    return tyro.cli(RunOptions, args=argv, prog="sombrl hardware run CAMPAIGN", default=RunOptions(config, Learning()))
