"""A run as a process: train, resume, evaluate, watch, draw."""

from sombrl.storage.run_folder import RunFolder as RunFolder
