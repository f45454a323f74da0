"""The sequence replay of Dreamer: windows of endless streams of records, with the latents of their first steps.

A record is (o, r, first, last, terminal, a, latent) of one time step; r is the reward received on arrival and a the
action chosen after o. Everything is on the host, in NumPy. Latents are stored small: the deterministic part in half
precision, the stochastic one as class indices.
"""

import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer, Num

from sombrl.envs.layout import Part
from sombrl.errors import SombrlError

CHUNK = 1024  # records of every stream that are allocated together
GIB = 2**30
LATENTS = ("deter", "stoch")


class LatentSpec(NamedTuple):
    """The size of a latent state: `deter` numbers and `latents` categoricals of `classes` classes."""

    deter: int
    latents: int
    classes: int


class Batch(NamedTuple):
    """Windows of `length` + 1 consecutive records. The first is context: its latent is where the sequence starts."""

    obs: dict[str, Num[np.ndarray, "batch time ..."]]
    action: Float[np.ndarray, "batch time action"]
    reward: Float[np.ndarray, "batch time"]
    first: Bool[np.ndarray, "batch time"]
    last: Bool[np.ndarray, "batch time"]
    terminal: Bool[np.ndarray, "batch time"]
    deter: Float[np.ndarray, "batch deter"]  # of the context record only
    stoch: Integer[np.ndarray, "batch latents"]  # class indices, of the context record only
    positions: Int[np.ndarray, "batch 2"]  # stream, and time of the context record in that stream
    new: Bool[np.ndarray, " batch"]  # no batch has had the window before


class Field(NamedTuple):
    """What is stored of one entry of a record."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Bytes per record."""
        return math.prod(self.shape) * self.dtype.itemsize


class SequenceReplay:
    """The records of one seed: `rows` streams that grow together, each a ring that overwrites its oldest record.

    - `capacity`: records of all streams together.
    - `layout`: the parts of an observation.
    - `length`: trained steps of a window; it has one record more in front.

    Windows may cross the borders of episodes: `first` marks them. Not safe for several threads at once.
    """

    def __init__(
        self,
        rows: int,
        capacity: int,
        layout: Sequence[Part],
        action_dim: int,
        latent: LatentSpec,
        length: int = 64,
        *,
        seed: int,
    ):
        if rows < 1 or length < 1:
            raise SombrlError(f"a replay needs at least 1 stream and windows of 1 step, not {rows} and {length}.")
        if capacity // rows <= length:
            raise SombrlError(
                f"a replay of {capacity} records has no room for a window of {length + 1} in each of {rows} streams; "
                f"use --capacity {rows * (length + 1)} or more."
            )
        self.rows, self.length, self.ring = rows, length, capacity // rows
        self.fields = {_obs(part.name): Field(part.shape, part.dtype) for part in layout} | {
            "action": Field((action_dim,), np.dtype(np.float32)),
            "reward": Field((), np.dtype(np.float32)),
            "first": Field((), np.dtype(np.bool_)),
            "last": Field((), np.dtype(np.bool_)),
            "terminal": Field((), np.dtype(np.bool_)),
            "deter": Field((latent.deter,), np.dtype(np.float16)),
            "stoch": Field((latent.latents,), np.dtype(np.uint8 if latent.classes <= 256 else np.uint16)),
        }
        self.added = 0  # records of each stream so far: the time of the next one
        self._floor = 0  # records before this time are gone, whatever `added` says
        self._parts = tuple(part.name for part in layout)
        self._chunks: list[dict[str, np.ndarray]] = []  # by field, [rows, at most CHUNK, ...]
        self._queue: deque[tuple[int, int]] = deque()  # positions of windows that no batch has had yet
        self._generator = np.random.Generator(np.random.PCG64(seed))

    @property
    def oldest(self) -> int:
        """The time of the oldest record that is still there."""
        return max(self._floor, self.added - self.ring)

    @property
    def count(self) -> int:
        """How many start positions there are."""
        return self.rows * max(0, self.added - self.oldest - self.length)

    def __len__(self) -> int:
        """How many start positions there are."""
        return self.count

    @property
    def bytes_per_record(self) -> int:
        """What one record of one stream takes."""
        return sum(field.nbytes for field in self.fields.values())

    @property
    def nbytes(self) -> int:
        """What is allocated so far."""
        return sum(array.nbytes for chunk in self._chunks for array in chunk.values())

    @property
    def nbytes_full(self) -> int:
        """What will be allocated once the rings are full."""
        return self.rows * self.ring * self.bytes_per_record

    def ready(self, batch: int) -> bool:
        """Whether there are as many start positions as a batch has steps, which is when learning starts."""
        return self.count >= batch * self.length

    def needed(self, batch: int) -> int:
        """How many records, of all streams together, it takes to be `ready`."""
        needed = least_records(self.rows, batch, self.length)
        if needed > self.rows * self.ring:
            raise SombrlError(
                f"learning with batches of {batch} windows starts at {needed} records and the replay holds "
                f"{self.rows * self.ring}; use --capacity {needed} or more."
            )
        return needed

    def add(self, records: dict[str, Any]) -> None:
        """One more record of every stream: every array has a leading axis of rows, and `obs` is a dict of such.

        A record that is followed by a `first` one is marked `last`: its episode was cut short.
        """
        values = {_obs(name): records["obs"][name] for name in self._parts}
        values |= {name: records[name] for name in self.fields if name not in values}
        for name, field in self.fields.items():
            self._check(name, values[name], field)
        chunk, slot = self._place(self.added)
        if chunk == len(self._chunks):
            self._chunks.append(self._allocate(chunk))
        for name, value in values.items():
            self._chunks[chunk][name][:, slot] = value
        if self.added > 0:
            before, slot = self._place(self.added - 1)
            self._chunks[before]["last"][:, slot] |= values["first"]
        self.added += 1
        if self.added % (self.length + 1) == 0:
            self._queue.extend((row, self.added - self.length - 1) for row in range(self.rows))

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` records, unless there is room already or records were overwritten."""
        if self.added > self.ring or capacity // self.rows <= self.ring:
            return
        self.ring = capacity // self.rows
        for index, chunk in enumerate(self._chunks):
            used, larger = next(iter(chunk.values())).shape[1], self._allocate(index)
            for name, array in chunk.items():
                larger[name][:, :used] = array
            self._chunks[index] = larger

    def mark(self) -> Callable[[], None]:
        """A function that restores the present state, except latents written since and records overwritten since."""
        added, queue, words = self.added, list(self._queue), _to_words(self._generator)

        def rewind() -> None:
            self._floor = max(self._floor, self.added - self.ring)
            self.added, self._queue = added, deque(queue)
            del self._chunks[-(-min(added, self.ring) // CHUNK) :]
            _from_words(self._generator, words)

        return rewind

    def adopt(self, other: "SequenceReplay") -> None:
        """Add the records of another replay, oldest first."""
        for time in range(other.oldest, other.added):
            chunk, slot = other._place(time)
            fields = {name: array[:, slot] for name, array in other._chunks[chunk].items()}
            self.add(fields | {"obs": {name: fields[_obs(name)] for name in self._parts}})

    def sample(self, batch: int) -> Batch:
        """Windows that no batch has had yet, oldest first, then others, uniform over all start positions.

        The first kind are those that begin at a multiple of `length` + 1: they do not overlap, and miss nothing.
        """
        if self.count == 0:
            raise SombrlError(f"no window of {self.length + 1} records yet; record more before sampling.")
        positions, new = self._draw(batch)
        return self._windows(positions, new)

    def latest(self, batch: int, context: int = 1) -> Batch:
        """The newest windows that do not overlap, as many as there are, at most `batch`; it changes nothing.

        Those in which an episode begins after the first `context` steps only where there are too few others.
        """
        span, there = self.length + 1, self.added - self.oldest
        pairs = [(row, self.added - (back + 1) * span) for back in range(there // span) for row in range(self.rows)]
        if not pairs:
            raise SombrlError(f"no window of {span} records yet; record more before looking at one.")
        pairs = pairs[: 8 * batch]
        begins = [self._stream("first", start + 1 + context, start + span, row).any() for row, start in pairs]
        chosen = np.argsort(begins, kind="stable")[:batch]
        return self._windows(np.array(pairs, np.int64)[chosen], np.zeros(len(chosen), bool))

    def _windows(self, positions: Int[np.ndarray, "batch 2"], new: Bool[np.ndarray, " batch"]) -> Batch:
        batch = len(positions)
        names = [name for name in self.fields if name not in LATENTS]
        windows = {n: np.empty((batch, self.length + 1, *self.fields[n].shape), self.fields[n].dtype) for n in names}
        latents = {n: np.empty((batch, *self.fields[n].shape), self.fields[n].dtype) for n in LATENTS}
        # Chunks are arrays of their own, so a window is copied as the one to three contiguous runs it has in them.
        for index, (row, start) in enumerate(positions.tolist()):
            for chunk, source, target in self._runs(start, self.length + 1):
                for name, window in windows.items():
                    window[index, target] = self._chunks[chunk][name][row, source]
            chunk, slot = self._place(start)
            for name, latent in latents.items():
                latent[index] = self._chunks[chunk][name][row, slot]
        obs = {name: windows.pop(_obs(name)) for name in self._parts}
        return Batch(obs=obs, **windows, **latents, positions=positions, new=new)

    def last_episode(self, part: str, longest: int) -> Num[np.ndarray, "time ..."] | None:
        """What the first stream saw in its newest whole episode, at most the last `longest` of it; None before one."""
        first, last = (self._stream(name, self.oldest, self.added) for name in ("first", "last"))
        if not last.any():
            return None
        end = int(np.flatnonzero(last)[-1]) + 1
        starts = np.flatnonzero(first[:end])
        begin = max(int(starts[-1]) if len(starts) else 0, end - longest)
        return self._stream(_obs(part), self.oldest + begin, self.oldest + end)

    def write_latents(
        self,
        batch: Batch,
        deter: Float[np.ndarray, "batch length deter"],
        stoch: Integer[np.ndarray, "batch length latents"],
    ) -> None:
        """Replace the latents of all but the context records, where these have not been overwritten since.

        `deter` is stored as float16: coming as such it need not be converted here.
        """
        fresh = {"deter": deter.astype(np.float16, copy=False), "stoch": stoch.astype(self.fields["stoch"].dtype)}
        for index, (row, start) in enumerate(batch.positions.tolist()):
            gone = min(max(0, self.oldest - start - 1), self.length)
            for chunk, target, source in self._runs(start + 1 + gone, self.length - gone):
                for name, value in fresh.items():
                    self._chunks[chunk][name][row, target] = value[index, gone:][source]

    def state(self) -> dict[str, np.ndarray]:
        """All there is, as plain arrays. Those of records are views: write them out before the replay changes."""
        arrays = {
            "shape": np.array([self.rows, self.ring, self.length], np.int64),
            "added": np.array(self.added, np.int64),
            "floor": np.array(self._floor, np.int64),
            "queue": np.array(self._queue, np.int64).reshape(-1, 2),
            "generator": _to_words(self._generator),
        }
        for index, chunk in enumerate(self._chunks):
            for name, array in chunk.items():
                arrays[_record(name, index)] = array[:, : self._used(index, self.added)]
        return arrays

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue bit for bit from the result of `state`, which is consumed."""
        shape = [self.rows, self.ring, self.length]
        if state["shape"].tolist() != shape:
            raise SombrlError(
                f"the saved replay has {state['shape'].tolist()} streams, records of each and steps of a window, and "
                f"this one {shape}; resume with the settings it was saved with."
            )
        added = int(state["added"])
        chunks = []
        for index in range(-(-min(added, self.ring) // CHUNK)):
            chunk, used = self._allocate(index), self._used(index, added)
            for name, array in chunk.items():
                saved = state.pop(_record(name, index), None)  # let go of, so that they need not fit twice
                if saved is None or saved.dtype != array.dtype or saved.shape != array[:, :used].shape:
                    raise SombrlError(
                        f"the saved replay has other records than this one, in {name}; resume with the settings it "
                        f"was saved with."
                    )
                array[:, :used] = saved
            chunks.append(chunk)
        self.added, self._chunks, self._floor = added, chunks, int(state.get("floor", 0))
        self._queue = deque((row, start) for row, start in state["queue"].tolist())
        _from_words(self._generator, state["generator"])

    def _draw(self, batch: int) -> tuple[Int[np.ndarray, "batch 2"], Bool[np.ndarray, " batch"]]:
        while self._queue and self._queue[0][1] < self.oldest:
            self._queue.popleft()  # overwritten before its turn
        fresh = [self._queue.popleft() for _ in range(min(batch, len(self._queue)))]
        drawn = self._generator.integers(self.count, size=batch - len(fresh))
        row, time = np.divmod(drawn, self.count // self.rows)
        uniform = np.stack([row, self.oldest + time], axis=1)
        return np.concatenate([np.array(fresh, np.int64).reshape(-1, 2), uniform]), np.arange(batch) < len(fresh)

    def _stream(self, name: str, begin: int, end: int, row: int = 0) -> np.ndarray:
        """A field of the records of times `begin` to `end` of one stream."""
        field = self.fields[name]
        nothing = [np.empty((0, *field.shape), field.dtype)]
        runs = self._runs(begin, end - begin)
        return np.concatenate(nothing + [self._chunks[chunk][name][row, source] for chunk, source, _ in runs])

    def _place(self, time: int) -> tuple[int, int]:
        """The chunk of a record and the slot in it."""
        return divmod(time % self.ring, CHUNK)

    def _runs(self, start: int, number: int) -> Iterator[tuple[int, slice, slice]]:
        """The records of times `start` to `start + number` as contiguous runs: chunk, slots in it, steps of these."""
        done = 0
        while done < number:
            chunk, slot = self._place(start + done)
            size = min(number - done, self._size(chunk) - slot)
            yield chunk, slice(slot, slot + size), slice(done, done + size)
            done += size

    def _size(self, chunk: int) -> int:
        return min(CHUNK, self.ring - chunk * CHUNK)

    def _used(self, chunk: int, added: int) -> int:
        return min(self._size(chunk), added - chunk * CHUNK)

    def _allocate(self, chunk: int) -> dict[str, np.ndarray]:
        size = self._size(chunk)
        return {name: np.empty((self.rows, size, *field.shape), field.dtype) for name, field in self.fields.items()}

    def _check(self, name: str, value: np.ndarray, field: Field) -> None:
        shape = (self.rows, *field.shape)
        fits = name in LATENTS or np.can_cast(value.dtype, field.dtype, "same_kind")
        if value.shape != shape or not fits:
            raise SombrlError(
                f"{name} of a record is {value.dtype} {value.shape} where the replay stores {field.dtype} {shape}; "
                f"give it a layout that fits the environment."
            )


class UpdateRatio:
    """How many updates are due: `ratio` replayed steps per record, where an update replays `batch` · `length`.

    The first time it is asked one update is due, however many records there are: what was recorded before learning
    started is not caught up on.
    """

    def __init__(self, ratio: float | int, batch: int, length: int):
        if not 0 < ratio < math.inf:
            raise SombrlError(f"the replay ratio must be positive, not {ratio}; 512 is a usual one.")
        self.rate = Fraction(str(ratio)) / (batch * length)  # exact as written, so that nothing drifts
        self.start: int | None = None  # records when learning started
        self.done = 0

    def __call__(self, records: int) -> int:
        """The updates due now, with so many records so far; they count as done."""
        if self.start is None:
            self.start = records
        due = max(0, 1 + math.floor((records - self.start) * self.rate) - self.done)
        self.done += due
        return due

    def state(self) -> Int[np.ndarray, " 2"]:
        """The records at the start, -1 before it, and the updates since."""
        return np.array([-1 if self.start is None else self.start, self.done], np.int64)

    def restore(self, state: Int[np.ndarray, " 2"]) -> None:
        """Go on from what `state` returned."""
        start, self.done = state.tolist()
        self.start = None if start < 0 else start


def least_records(rows: int, batch: int, length: int) -> int:
    """How many records, of all streams together, have as many start positions as a batch of windows has steps."""
    return rows * (-(-batch * length // rows) + length)


def check_memory(bytes_needed: int, available: int | None = None) -> None:
    """Refuse a replay that, once full, would not fit into the `available` bytes, those of this machine if left out."""
    available = available_memory() if available is None else available
    if bytes_needed > available:
        times = math.ceil(10 * bytes_needed / max(available, 1)) / 10
        raise SombrlError(
            f"a full replay needs {bytes_needed / GIB:.1f} GiB and {available / GIB:.1f} GiB are available; "
            f"divide --capacity by {times} or more."
        )


def available_memory() -> int:
    """Bytes that can be allocated without swapping; all of the memory where the system does not say."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _obs(name: str) -> str:
    return f"obs/{name}"  # so that a part may be called `action`


def _record(name: str, chunk: int) -> str:
    return f"records/{chunk:05d}/{name}"


def _to_words(generator: np.random.Generator) -> np.ndarray:
    """The state of a PCG64 as 64-bit words; its two large numbers have 128 bits."""
    state = generator.bit_generator.state
    large = [state["state"]["state"], state["state"]["inc"]]
    words = [word for number in large for word in divmod(number, 2**64)]
    return np.array([*words, state["has_uint32"], state["uinteger"]], np.uint64)


def _from_words(generator: np.random.Generator, words: np.ndarray) -> None:
    high, low, inc_high, inc_low, has_uint32, uinteger = words.tolist()
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": high * 2**64 + low, "inc": inc_high * 2**64 + inc_low},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
