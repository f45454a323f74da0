"""What a machine has room for: cores, and the memory of its GPUs, or its own where there is none."""

import dataclasses
import os
import subprocess
from collections.abc import Collection, Hashable

from sombrl.sweep.local import cores_here, visible_gpus

USABLE = 0.95  # of a device's memory: every process needs a little more of it than JAX takes


@dataclasses.dataclass(frozen=True)
class Need:
    """What a process takes."""

    cores: int = 1
    memory_gb: float = 1.0
    """Of its GPU, or of the machine where there is none."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """Cores and devices."""

    name: str
    cores: int
    memory_gb: tuple[float, ...]
    """Of each GPU; the machine's own, one number, where there is none."""
    gpus: tuple[str, ...] = ()
    """As CUDA_VISIBLE_DEVICES names them."""

    def described(self) -> str:
        """A few words for it."""
        memory = " + ".join(f"{amount:.0f}" for amount in self.memory_gb)
        return f"{self.name} ({self.cores} core{'s' * (self.cores != 1)}, {memory} GB)"


def this_machine() -> Machine:
    """The one that this process runs on."""
    gpus = tuple(visible_gpus())
    if gpus:
        return Machine("this machine", len(cores_here()), _gpu_memory(gpus), gpus)
    own = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Machine("this machine", len(cores_here()), (own,))


class Room:
    """Who has which share of a machine. With `workers` that many fit at a time, whatever they need."""

    def __init__(self, machine: Machine, workers: int | None = None):
        self.machine, self.workers = machine, workers
        self._taken: dict[Hashable, tuple[Need, int]] = {}

    def take(self, who: Hashable, need: Need) -> bool:
        """Give it a place if there is one."""
        device = self._device_for(need)
        if device is None:
            return False
        self._taken[who] = (need, device)
        return True

    def keep(self, those: Collection[Hashable]) -> None:
        """All others have left."""
        self._taken = {who: share for who, share in self._taken.items() if who in those}

    def share(self, who: Hashable) -> tuple[Need, int]:
        """What somebody has, and the number of the device."""
        return self._taken[who]

    def ever(self, need: Need) -> bool:
        """Whether there is a place for it when nobody else is there."""
        return Room(self.machine, self.workers).take("it", need)

    def _device_for(self, need: Need) -> int | None:
        load = [0.0] * len(self.machine.memory_gb)
        for other, device in self._taken.values():
            load[device] += other.memory_gb
        if self.workers is not None:
            return min(range(len(load)), key=lambda i: load[i]) if len(self._taken) < self.workers else None
        if sum(other.cores for other, _ in self._taken.values()) + need.cores > self.machine.cores:
            return None
        free = [USABLE * most - used for most, used in zip(self.machine.memory_gb, load, strict=True)]
        fitting = [i for i, left in enumerate(free) if need.memory_gb <= left]
        return max(fitting, key=lambda i: free[i]) if fitting else None


def _gpu_memory(gpus: tuple[str, ...]) -> tuple[float, ...]:
    """GB of each GPU; those that cannot be asked have none, and so no room but with --workers."""
    ask = ["nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(ask, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return (0.0,) * len(gpus)
    found: dict[str, float] = {}
    for line in listed.splitlines():
        index, uuid, memory = (part.strip() for part in line.split(","))
        found[index] = found[uuid] = float(memory) / 1024 if memory.replace(".", "").isdigit() else 0.0
    return tuple(next((size for name, size in found.items() if name.startswith(gpu)), 0.0) for gpu in gpus)
