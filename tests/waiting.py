"""Waiting for something that another thread or process does."""

import subprocess
import time


def wait_for(condition, process: subprocess.Popen | None = None, seconds=120.0):
    """What the condition says as soon as it is true; fails when `process` ends before."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.01)
    return found
