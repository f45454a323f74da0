"""Many runs at once: a sweep is a set of cells that a backend (this machine, Ray, SLURM) brings to their end."""
