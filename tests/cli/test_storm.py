"""However many signals come, a command ends with the code of the first, and says one sentence."""

import contextlib
import signal
import subprocess
import sys
import time

import pytest

SCRIPT = """
import signal, sys, time
from sombrl.cli import app

def work(argv):
    print("ready", flush=True)
    time.sleep(60)

signal.signal(signal.SIGINT, signal.default_int_handler)  # as at a terminal
app.COMMANDS["doctor"] = work
sys.argv = ["sombrl", "doctor"]
app.main()
"""


@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGINT, signal.SIGTERM)])
def test_a_storm_of_signals_ends_as_the_first_of_them(numbers):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    for i in range(30):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(numbers[i % len(numbers)])
        time.sleep(0.004)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "sombrl: stopped.\n"
