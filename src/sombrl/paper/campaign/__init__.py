"""Cells of the paper's experiments as a list to be worked off in whatever time a machine is to be had for."""
