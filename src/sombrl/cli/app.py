"""The command line: a table of commands, each of which is imported when it runs. Bad input is one sentence."""

import dataclasses
import errno
import functools
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any

from sombrl.cli.parser import call, plain_errors
from sombrl.config.check import shown
from sombrl.config.suggestions import nearest
from sombrl.errors import RunFault, SombrlError
from sombrl.output import guarded


@dataclasses.dataclass(frozen=True)
class Command:
    """A row of the table: what it takes, what it does, an example, and the function that does it."""

    name: str
    takes: str
    summary: str
    example: str
    function: str
    """module:name. Its signature is the command's options, unless `whole`."""
    whole: bool = False
    """The function reads the words after the command by itself."""

    def __call__(self, argv: list[str]) -> None:
        """Run it."""
        module, _, name = self.function.partition(":")
        function = getattr(importlib.import_module(f"sombrl.{module}"), name)
        if self.whole:
            function(argv)
        else:
            call(function, argv, f"sombrl {self.name}")


TABLE = (
    Command("train", "ALGORITHM", "train on an environment", "train gp-icem --explore hucrl", "cli.train:train", True),
    Command("resume", "RUN", "continue a run exactly", "resume runs/p", "cli.runs:resume"),
    Command("eval", "RUN", "returns of the trained agent", "eval runs/p --video swing.gif", "cli.runs:evaluate"),
    Command("bounds", "RUN", "what its model promises", "bounds runs/p --calibrated 0.9", "cli.runs:bounds"),
    Command("plot", "RUN...", "learning curves as a picture", "plot runs/p runs/q", "cli.runs:plot"),
    Command("export", "RUN...", "metrics of runs as one table", "export runs/p --out p.csv", "cli.runs:export"),
    Command(
        "export-policy",
        "RUN",
        "a policy for NumPy or ONNX",
        "export-policy runs/p --out pilot",
        "cli.runs:export_policy",
    ),
    Command(
        "export-replay",
        "RUN",
        "episodes as a Minari dataset",
        "export-replay runs/p --out swing/p-v0",
        "cli.runs:export_replay",
    ),
    Command("report", "PATH...", "runs and tables as one page", "report runs --out report.html", "cli.runs:report"),
    Command(
        "experiment", "NAME", "the paper's experiments", "experiment gp-episodic", "cli.experiments:experiment", True
    ),
    Command("sweep", "SPEC", "many runs, on many machines", "sweep sweep.toml", "cli.sweeps:sweep", True),
    Command("status", "SWEEP", "what became of its cells", "status sweeps/x --watch", "sweep.commands:status", True),
    Command("tune", "SPEC", "search for settings", "tune tune.toml --trials 20", "sweep.commands:tune", True),
    Command("hardware", "run DIR", "drive a car and learn", "hardware run runs/car", "cli.hardware:hardware", True),
    Command("list", "WHAT", "what there is to choose from", "list envs", "cli.machine:list_names", True),
    Command("check-env", "ENV", "whether an environment works", "check-env Pendulum-v1", "cli.machine:check_env"),
    Command("doctor", "", "what this machine has and lacks", "doctor", "cli.machine:doctor"),
    Command("demo", "", "optimistic against greedy", "demo", "cli.machine:demo"),
)
OF_FILES = (
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EIO),
)
"""What a file system says about a path or about itself, and no fault of ours."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
COMMANDS = {command.name: command for command in TABLE}
"""A new command is a function and a row of `TABLE`."""


def usage() -> str:
    """The help of sombrl itself."""
    rows = [f"  {f'{c.name} {c.takes}':<17} {c.summary:<31} sombrl {c.example}".rstrip() for c in TABLE]
    end = "`sombrl COMMAND --help` shows its options with their defaults."
    return "\n".join(["usage: sombrl COMMAND ...", "", *rows, "", end])


def main(argv: list[str] | None = None) -> None:
    """Run a command; bad input is one sentence and exit code 2, a fault while running one and 1."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    with guarded() as out:
        try:
            sentence, code = _attempt(sys.argv[1:] if argv is None else argv)
        except KeyboardInterrupt:  # one more, while the first was answered
            sentence, code = "stopped.", 130
        # Nobody is to be hurried out of what is left to say into another exit code.
        _handle(dict.fromkeys(SIGNALS, signal.SIG_IGN))
        out.flush()
        if out.lost is not None and out.lost.errno != errno.EPIPE and sentence is None:
            sentence, code = f"cannot write to the standard output: {out.lost.strerror}; the work itself is done.", 1
        if sentence is not None:
            print(f"sombrl: {' '.join(sentence.split())}", file=sys.stderr)
    if argv is not None:  # this process goes on
        _handle(before)
    if code:
        sys.exit(code)


def _attempt(argv: list[str]) -> tuple[str | None, int]:
    """Run a command; what there is to say at its end, and its exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return None, 0
    if argv[0] == "--version":
        print(f"sombrl {__import__('sombrl').__version__}")
        return None, 0
    from sombrl.runs.signals import terminate_as_interrupt
    from sombrl.runs.train import Interrupted
    from sombrl.storage.program_cache import keep_programs

    keep_programs()
    usual = sys.unraisablehook
    sys.unraisablehook = functools.partial(_insist, usual)
    try:
        if argv[0] not in COMMANDS:
            raise nearest(argv[0], COMMANDS, "command", see="sombrl --help")
        with plain_errors(), terminate_as_interrupt():
            COMMANDS[argv[0]](argv[1:])
    except SombrlError as error:
        return str(error), 2
    except RunFault as error:
        return str(error), 1
    except Interrupted as stopped:
        return str(stopped), 130
    except KeyboardInterrupt:
        return "stopped.", 130
    except MemoryError as error:
        return f"this machine has not enough memory ({str(error) or 'none is left'}): ask for less.", 1
    except Exception as error:
        if os.environ.get("SOMBRL_DEBUG"):
            traceback.print_exc()
        if isinstance(error, OSError) and error.errno in OF_FILES and error.filename is not None:
            code = 2 if error.errno in (errno.ENAMETOOLONG, errno.ELOOP) else 1
            return f"cannot use {shown(str(error.filename))}: {error.strerror}.", code
        if "RESOURCE_EXHAUSTED" in str(error):
            return "the device is out of memory: ask for less, such as a smaller capacity or fewer seeds.", 1
        kind = type(error).__name__
        return f"an error in sombrl itself, {kind}: {error} (SOMBRL_DEBUG=1 shows the trace; please report it)", 1
    finally:
        sys.unraisablehook = usual
    return None, 0


def _handle(handlers: Mapping[Any, Any]) -> None:
    """The handler of signals from now on; only the main thread can set one."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            if handler is not None:  # one that is not Python's stays
                signal.signal(number, handler)


def _insist(usual: Any, ignored: Any) -> None:
    """A Ctrl-C that falls into a finaliser or a callback of JAX's is swallowed there: it comes again a moment later."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        main = threading.main_thread().ident
        threading.Timer(0.05, lambda: signal.pthread_kill(main or 0, signal.SIGINT)).start()
    else:
        usual(ignored)
