"""`sombrl sweep CAMPAIGN --minutes N`: what the most telling cells can do in this time, saved, merged, and told."""

import math
from collections.abc import Sequence
from pathlib import Path

from sombrl.paper.campaign.place import CampaignPlace
from sombrl.paper.campaign.plan import plan, plan_text
from sombrl.paper.campaign.spec import Campaign, Task, campaign_of
from sombrl.paper.campaign.work import Work
from sombrl.records import RunFault, SombrlError
from sombrl.runs.plots import drawing
from sombrl.runs.train import Interrupted, terminate_as_interrupt
from sombrl.sweep.commands import Asked
from sombrl.sweep.driver import Drive, driving
from sombrl.sweep.in_time import InTime
from sombrl.sweep.local import gpu_left_free
from sombrl.sweep.machine import Room, this_machine
from sombrl.sweep.on_machine import RoomBackend
from sombrl.sweep.worker import Job


def run_campaign(asked: Asked) -> None:
    """Do what the command line asks for."""
    campaign, here = campaign_of(asked.spec, asked.table), this_machine()
    minutes, workers = asked.workers.minutes, asked.workers.workers
    if asked.dry_run and minutes is None:
        raise SombrlError("--dry-run needs a time: add --minutes 25.")
    gpu_is_missing = campaign.machine is not None and bool(campaign.machine.gpus) and not here.gpus
    if gpu_is_missing and not asked.dry_run:
        assert campaign.machine is not None
        raise SombrlError(
            f"{asked.spec} is for {campaign.machine.name}, and there is no GPU here: add --dry-run to see what it does."
        )
    with drawing("the figures of experiments"):
        pass  # without matplotlib it would fail after the training
    with gpu_left_free():
        work = Work(campaign, asked.out or Path("sweeps") / campaign.name, asked.results, asked.command)
    if asked.dry_run:
        assert minutes is not None
        machine = campaign.machine if campaign.machine is not None and gpu_is_missing else here
        todos = work.todos(measured=machine is here)
        planned = plan(todos, machine, 60 * minutes, workers)
        print(plan_text(campaign.name, planned, machine, minutes, len(work.tasks) - len(todos)))
        return
    _run(work, campaign, Room(here, workers), math.inf if minutes is None else minutes, asked.workers.retries)


def _run(work: Work, campaign: Campaign, room: Room, minutes: float, retries: int) -> None:
    """See the campaign through for so many minutes, then merge what is finished and say how it stands."""
    tasks = work.jobs(room)
    drive = Drive(RoomBackend(room), retries)
    drive.called = lambda job: tasks[job].name
    for job in tasks:
        drive.add(job)

    def enters(job: Job, beside: Sequence[Job]) -> bool:
        room.keep(beside)
        return room.take(job, tasks[job].need)

    in_time = InTime(minutes, work.paces, enters=enters, least=lambda job: work.least_s(tasks[job]))
    finished = sum(not work.left(task) for task in work.tasks)
    print(f"{finished} of {len(work.tasks)} are finished, on {room.machine.described()}", flush=True)
    stopped = False
    try:
        with terminate_as_interrupt(), driving(CampaignPlace.of(campaign, work.folder), work.command):
            in_time(drive)
    except KeyboardInterrupt:
        stopped = True
        drive.stop()
    except BaseException:
        drive.stop()
        raise
    failed = {tasks[job]: reason for job, reason in drive.given_up.items()}
    _close(work, work.table(failed, room, minutes), failed, stopped)


def _close(work: Work, table: str, failed: dict[Task, str], stopped: bool) -> None:
    """Merge, show the table, and end as it went."""
    print(f"\n{table}\n", flush=True)
    with gpu_left_free():  # the manifest names it
        tables = work.merge()
    for path in tables:
        print(f"table    {path}")
    again = " ".join(work.command)
    remain = sum(bool(work.left(task)) for task in work.tasks)
    if stopped:
        raise Interrupted(f"{remain} remain, saved as they are; go on with the same command: {again}")
    if failed:
        task, reason = next(iter(failed.items()))
        raise RunFault(f"{len(failed)} failed, {task.name}: {reason.rstrip('.')}; the same command tries them again.")
    print(f"{remain} remain; go on with the same command: {again}" if remain else "all is finished")
