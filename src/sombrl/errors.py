"""The two ways to stop with a sentence. Apart from the records, so that simulator processes need not load JAX."""


class SombrlError(Exception):
    """A mistake of the caller, told in one sentence that says what to do. The command line exits with 2."""


class RunFault(Exception):
    """Something broke while running (NaN from a simulator, a full disk). The command line exits with 1."""


class SimulatorFault(RunFault):
    """A simulator raised an exception of its own."""
