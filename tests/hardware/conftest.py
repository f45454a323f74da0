"""A busy machine may take its time to connect."""

import pytest

from sombrl.hardware import remote


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr(remote, "CALLING", 60.0)
