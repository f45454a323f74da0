"""Python imports this by itself where its folder is on PYTHONPATH: it counts what a run writes, and can die at a write.

KILL_UNDER   the folder whose writes count
KILL_LOG     a file that gets a line with the time for each of them, of all processes
KILL_AT      the number, from 1, of the one to die at
KILL_HOW     before it, after it, or torn: with half of what was to be written

A write is an fsync, a rename or a replace: sombrl ends everything that it puts on disk with one of them. Heartbeats are
none, for their number is that of the clock.
"""

import os
import random
import signal
import time

LINE = 20
UNDER, LOG = os.environ.get("KILL_UNDER"), os.environ.get("KILL_LOG", "")
AT, HOW = int(os.environ.get("KILL_AT", "0")), os.environ.get("KILL_HOW", "before")


def counted(name, operation):
    def write(*args, **kwargs):
        path = os.fspath(args[0]) if name != "fsync" else os.readlink(f"/proc/self/fd/{args[0]}")
        ours = str(path).startswith(UNDER) and "heartbeat" not in str(path) and number() == AT
        if ours and HOW != "after":
            if HOW == "torn" and name == "fsync":
                tear(args[0], path)
            os.kill(os.getpid(), signal.SIGKILL)
        done = operation(*args, **kwargs)
        if ours:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    return write


def number():
    """Note that there is a write; which one it is."""
    log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(log, f"{time.monotonic():{LINE - 1}.6f}\n".encode())
        return os.lseek(log, 0, os.SEEK_CUR) // LINE
    finally:
        os.close(log)


def tear(descriptor, path):
    """Leave a part of what was written last: of a new file anything, of rows that were added half of the last one."""
    size = os.fstat(descriptor).st_size
    if os.path.isfile(path) and ".tmp-" in path:
        os.truncate(path, random.Random(AT).randrange(size + 1))
    elif path.endswith(".jsonl"):
        with open(path, "rb") as file:
            last = file.read().splitlines()[-1]
        os.truncate(path, size - 1 - random.Random(AT).randrange(len(last)))


if UNDER:
    for name in ("fsync", "rename", "replace"):
        setattr(os, name, counted(name, getattr(os, name)))
