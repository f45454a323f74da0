"""A busy machine may take its time to connect, and be silent for longer."""

import pytest

from sombrl.hardware import remote, server


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr(remote, "CALLING", 60.0)
    monkeypatch.setattr(server, "SILENCE", 600.0)
