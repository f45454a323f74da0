"""The parts of DreamerV3: layers, encoders, heads, returns, the optimiser and the latent ensemble.

`sombrl/dynamics/rssm.py` has its sequence model and `sombrl/algorithms/dreamer.py` the algorithm.
"""
