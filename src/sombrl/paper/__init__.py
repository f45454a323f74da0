"""What reproduces the paper: its experiments, a laboratory for its theorems, recordings of the real car."""
