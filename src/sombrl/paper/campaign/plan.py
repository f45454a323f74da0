"""What a campaign would do in so many minutes, reckoned from what its cells are expected to take."""

import dataclasses
from collections.abc import Sequence

from sombrl.paper.campaign.spec import Entry, Task
from sombrl.sweep.in_time import closing_s, too_late
from sombrl.sweep.machine import Machine, Room
from sombrl.sweep.pace import Pace

LATE = "no time is left"
WIDTH = 56  # of a name in the table


@dataclasses.dataclass(frozen=True)
class Todo:
    """A task that is not finished: where it is, and how it gets on."""

    task: Task
    done: float
    """The share of it."""
    left_s: float
    """That it still takes, once it has started."""
    first_s: float
    """Until it has saved something."""
    pace: Pace = dataclasses.field(default_factory=Pace)


@dataclasses.dataclass(frozen=True)
class Planned:
    """What becomes of it; times in seconds from the beginning."""

    todo: Todo
    start: float | None
    end: float | None = None
    done: float = 0.0
    """The share of it at the end."""
    why: str = ""
    """Why it does not start."""


def plan(todos: Sequence[Todo], machine: Machine, seconds: float, workers: int | None = None) -> list[Planned]:
    """What would be done in this time, in the order of the tasks: as `InTime` drives them."""
    room, now = Room(machine, workers), 0.0
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    of = {todo.task.name: todo for todo in todos}
    running: list[str] = []
    while True:
        for name, todo in of.items():
            late = too_late(seconds - now, todo.first_s, todo.pace)
            if name not in starts and not late and room.take(name, todo.task.need):
                starts[name], ends[name] = now, now + todo.left_s
                running.append(name)
        stop = seconds - closing_s([of[name].pace for name in running])
        if not running or (first := min(running, key=lambda name: ends[name])) is None or ends[first] >= stop:
            ends |= dict.fromkeys(running, stop)
            break
        now = ends[first]
        running.remove(first)
        room.keep(running)
    found = []
    for name, todo in of.items():
        if name in starts:
            share = (ends[name] - starts[name]) / todo.left_s if todo.left_s else 1.0
            done = todo.done + (1 - todo.done) * min(1.0, share)
            found.append(Planned(todo, starts[name], ends[name], done))
        else:
            why = LATE if room.ever(todo.task.need) else "this machine is too small for it"
            found.append(Planned(todo, None, done=todo.done, why=why))
    return found


def plan_text(name: str, planned: Sequence[Planned], machine: Machine, minutes: float, finished: int) -> str:
    """The plan as a table, in the order in which cells start."""
    started = sorted((one for one in planned if one.start is not None), key=lambda one: one.start or 0.0)
    rows = [("starts", "ends", "done", "cell", "decides")]
    for one in started:
        end = f"{(one.end or 0.0) / 60:.1f}"
        rows.append((f"{(one.start or 0.0) / 60:.1f}", end, f"{one.done:.0%}", one.todo.task.name, _claim(one)))
    lines = [f"{name}: what {minutes:g} minutes do on {machine.described()}; times in minutes", ""]
    lines += columns(rows) if started else ["nothing: no cell could save anything in this time"]
    waiting = [one for one in planned if one.start is None]
    if waiting:
        by: dict[tuple[Entry, str], list[Planned]] = {}
        for one in waiting:
            by.setdefault((one.todo.task.entry, one.why), []).append(one)
        later = [_later(entry, why, ones) for (entry, why), ones in by.items()]
        lines += ["", *columns([("takes", "for a later call", "decides"), *later])]
    ends = sum(one.done >= 1 for one in started)
    total = sum(one.todo.left_s for one in planned) / 60
    lines += [
        "",
        f"{finished} finished before; {ends} finish, {len(started) - ends} are begun and saved, {len(waiting)} wait; "
        f"one after the other, all that is left would take {total:.0f} minutes",
    ]
    return "\n".join(lines)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows below each other, with a line under the first."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [lines[0], "  ".join("─" * width for width in widths), *lines[1:]]


def _later(entry: Entry, why: str, waiting: Sequence[Planned]) -> tuple[str, str, str]:
    """A line for the cells of an entry that wait."""
    name = waiting[0].todo.task.name if len(waiting) == 1 else f"{entry.experiment} {entry.cells}"
    times = f"{len(waiting)} × " if len(waiting) > 1 else ""
    takes = f"{times}{max(one.todo.left_s for one in waiting) / 60:.0f} min"
    short = name if len(name) <= WIDTH else f"{name[: WIDTH - 1]}…"
    return takes if why == LATE else f"{takes}: {why}", short, entry.claim


def _claim(one: Planned) -> str:
    return one.todo.task.entry.claim
