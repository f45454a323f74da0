"""Live progress of a run: a small table on a terminal, one plain line per iteration elsewhere.

A display must never end a run, so every way of writing goes through `_guarded`: after the first failure (a
closed pipe, a terminal that went away) the display is silent and training goes on.
"""

import math
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sombrl.output import encodable

COMPILING = "compiling…"  # before the first decision, which may take minutes where the program is new
_SHOWN = 6  # iterations in the table
_REFRESH = 0.2  # seconds between drawings
_RECENT = 10  # iterations the estimate looks back: they get slower as data grow


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise, so that `_guarded` sees it; rich would exit the process here."""
        raise BrokenPipeError


class Progress:
    """The display of one run, a context manager.

    `iteration` takes a summary with the keys `iteration` (from 0), `return` (one per seed), `bonus_weight`,
    `mean_std`, `bonus_share`, `model_loss`, `decisions_per_s`; a missing one is shown as "-". Bounds on the return,
    `low` and `high`, are shown where there are some.
    """

    def __init__(
        self,
        total_iterations: int,
        label: str,
        seeds: int,
        stream: Any = None,  # whatever can write and flush; standard output if None
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total, self._seeds, self._clock = total_iterations, seeds, clock
        self._label = f"{label}, {seeds} seed{'s' * (seeds != 1)}"
        self._stream = sys.stdout if stream is None else stream
        self._rows: deque[dict[str, str]] = deque(maxlen=_SHOWN)
        self._times: deque[float] = deque(maxlen=_RECENT)
        self._first: float | None = None
        self._done, self._decision, self._length = 0, 0, 0
        self._silent = False
        self._returns: np.ndarray | None = None
        self._console: Console | None = None
        self._live: Live | None = None
        self._started = self._drawn = clock()

    def __enter__(self) -> "Progress":
        """Start the clock of the first iteration, and the live display on a terminal."""
        self._started = self._drawn = self._clock()
        self._guarded(self._open)
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the last table on the screen."""
        if self._live is not None:
            live, self._live = self._live, None
            self._guarded(live.stop)

    def decision(self, t: int, length: int) -> None:
        """Note that decision `t` (from 0) of `length` is taken; draws at most five times a second."""
        self._decision, self._length = t + 1, length
        if self._live is not None and self._clock() - self._drawn >= _REFRESH:
            self._guarded(self._draw)

    def iteration(self, summary: dict[str, Any]) -> None:
        """Show a finished iteration."""
        now = self._clock()
        if self._first is None:
            self._first = now - self._started  # compiles: no measure of the others
        else:
            self._times.append(now - self._started)
        self._started = now
        self._done = int(summary.get("iteration", self._done)) + 1
        self._decision = 0
        row = self._row(summary | {"return": self._latest(summary.get("return"))})
        self._rows.append(row)
        self._guarded(self._draw if self._live is not None else lambda: self._plain(row))

    def _latest(self, returns: Any) -> Any:
        """The returns; where no episode of a seed has ended since the last iteration, the one before."""
        try:
            new = np.asarray(returns, dtype=float).ravel()
        except (TypeError, ValueError):
            return returns
        if self._returns is not None and self._returns.shape == new.shape:
            new = np.where(np.isnan(new), self._returns, new)
        self._returns = new
        return new

    def _open(self) -> None:
        if _is_terminal(self._stream):
            self._console = _Console(file=self._stream, force_terminal=True)
            self._live = Live(console=self._console, auto_refresh=False, get_renderable=self._render)
            self._live.start(refresh=True)
        else:
            self._stream.write(encodable(f"{self._label}\n{COMPILING}\n", getattr(self._stream, "encoding", None)))
            self._stream.flush()

    def _guarded(self, action: Callable[[], None]) -> None:
        if self._silent:
            return
        try:
            action()
        except Exception:
            self._silent = True
            self._live, live = None, self._live
            try:
                if live is not None:
                    live.stop()  # gives the process its stdout and stderr back
            except Exception:
                pass

    def _draw(self) -> None:
        self._drawn = self._clock()
        assert self._live is not None
        self._live.refresh()

    def _plain(self, row: dict[str, str]) -> None:
        text = "  ".join(f"{name} {value}" for name, value in row.items())
        self._stream.write(encodable(f"{text}  ETA {self._eta()}\n", getattr(self._stream, "encoding", None)))
        self._stream.flush()

    def _row(self, summary: dict[str, Any]) -> dict[str, str]:
        share = _number(summary.get("bonus_share"))
        return {
            "iteration": f"{self._done}/{self._total}",
            "return": _spread(summary.get("return")),
            **({"J⁻": _short(summary["low"]), "J⁺": _short(summary["high"])} if "low" in summary else {}),
            "λ": _short(summary.get("bonus_weight")),
            "σ": _short(summary.get("mean_std")),
            **({"violations/1000": _short(summary["violations"])} if "violations" in summary else {}),
            "bonus": _short(share) if share is None or not math.isfinite(share) else f"{100 * share:.1f}%",
            "loss": _short(summary.get("model_loss")),
            "decisions/s": _short(summary.get("decisions_per_s")),
        }

    def _render(self) -> Group:
        """A table where it fits, otherwise the last iteration as name and value."""
        doing = f"decision {self._decision}/{self._length}  " if self._length else f"{COMPILING}  "
        running = min(self._done + 1, self._total)
        status = Text(f"iteration {running}/{self._total}  {doing}ETA {self._eta()}", style="bold")
        title = Text(self._label, style="dim", overflow="ellipsis", no_wrap=True)
        if not self._rows:
            return Group(title, status)
        if self._console is None or self._console.width < 80:
            table = Table.grid(padding=(0, 2))
            for name, value in self._rows[-1].items():
                table.add_row(Text(name, style="dim"), Text(value))
        else:
            table = Table(box=None, pad_edge=False, header_style="dim")
            for name in self._rows[-1]:
                table.add_column(name, justify="right", no_wrap=True)
            for row in self._rows:
                table.add_row(*(Text(value) for value in row.values()))
        return Group(title, table, status)

    def _eta(self) -> str:
        each = statistics.fmean(self._times) if self._times else self._first
        if each is None or not math.isfinite(each):
            return "-"
        return _duration(each * max(0, self._total - self._done))


def _is_terminal(stream: Any) -> bool:
    """Whether the stream can redraw; `FORCE_COLOR` must not put escapes in a log, so rich is not asked."""
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower()
    return stream.isatty() and os.environ.get("TERM") != "dumb" and encoding.startswith("utf")


def _number(value: Any) -> float | None:
    """A float; of several, the median; None for anything else."""
    try:
        values = [] if value is None else np.asarray(value, dtype=float).ravel().tolist()
    except (TypeError, ValueError):
        return None
    return statistics.median(values) if values else None


def _short(value: Any) -> str:
    number = _number(value)
    if number is None:
        return "-"
    return f"{number:.0f}" if 1e3 <= abs(number) < 1e7 else f"{number:.4g}"


def _spread(returns: Any) -> str:
    """Median [min, max] over the seeds that have a number, and how many have none: no episode of theirs has ended."""
    try:
        values = [] if returns is None else np.asarray(returns, dtype=float).ravel().tolist()
    except (TypeError, ValueError):
        return "-"
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return "-"
    lost = f" ({len(values) - len(finite)} without)" if len(finite) < len(values) else ""
    return f"{_short(finite)} [{_short(min(finite))}, {_short(max(finite))}]{lost}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{seconds:02d}s" if minutes else f"{seconds}s"
