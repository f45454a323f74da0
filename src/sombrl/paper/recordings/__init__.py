"""Recorded data as regressions: loaders that know the traps of a recording, and what a prediction is judged by."""
