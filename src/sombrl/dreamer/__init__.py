"""The parts of DreamerV3: layers, encoders, heads, returns, the optimiser and the latent ensemble.

`sombrl/dreamer/rssm.py` has its sequence model and `sombrl/dreamer/dreamer.py` the algorithm.
"""
