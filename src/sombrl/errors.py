"""The exceptions that end a run with one sentence. Free of JAX, for simulator processes."""


class SombrlError(Exception):
    """A mistake of the caller; its one sentence says what to do. The command line exits with 2."""


class RunFault(Exception):
    """Something broke while running (NaN from a simulator, a full disk). The command line exits with 1."""


class SimulatorFault(RunFault):
    """A simulator raised an exception of its own."""
