"""No test leaves a driver behind; its workers end with it."""

import pytest

from tests.sweep import tiny


@pytest.fixture(autouse=True)
def stop_drivers():
    yield
    while tiny.STARTED:
        process = tiny.STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.communicate()
