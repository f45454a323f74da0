"""Optimistic model-based reinforcement learning."""
