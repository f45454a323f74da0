"""Everything that is printed: any encoding takes it, and a reader that went away, or a full disk, ends no work.

A command writes to the standard streams through `Output`, which never raises. Whether something was lost is asked once,
at the end.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any

PLAIN = {"λ": "lambda", "σ": "sigma", "γ": "gamma", "·": "|", "×": "x", "±": "+-", "–": "-", "─": "-", "…": "..."}
"""What stands for our own signs where a terminal or a file cannot have them."""


def encodable(text: str, encoding: str | None) -> str:
    """The text, or what can be written of it in an encoding."""
    encoding = encoding or "utf-8"
    try:
        text.encode(encoding)
        return text
    except LookupError:  # an unknown encoding: its own error comes when it is written
        return text
    except UnicodeError:
        for sign, plain in PLAIN.items():
            text = text.replace(sign, plain)
        return text.encode(encoding, "backslashreplace").decode(encoding)


class Output:
    """A text stream that takes everything. After the first failure it is silent, and `lost` says why."""

    def __init__(self, stream: Any):
        """`stream` is None where a process was started without one."""
        self.stream = stream
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        """Write a text, as far as it can be."""
        if self.stream is not None and self.lost is None:
            try:
                self.stream.write(encodable(text, getattr(self.stream, "encoding", None)))
            except (OSError, ValueError) as error:  # closed: a ValueError
                self._lose(error)
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hand on what is buffered."""
        if self.stream is not None and self.lost is None:
            try:
                self.stream.flush()
            except (OSError, ValueError) as error:
                self._lose(error)

    def isatty(self) -> bool:
        """Whether somebody watches."""
        try:
            return self.stream is not None and bool(self.stream.isatty())
        except (OSError, ValueError):
            return False

    def _lose(self, error: OSError | ValueError) -> None:
        self.lost = error if isinstance(error, OSError) else OSError(errno.EPIPE, str(error))
        # What is still in the stream's own buffer would be tried again, and complained of, when Python ends.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(nowhere := os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the stream's: its encoding, its number, its buffer."""
        return getattr(self.stream, name)


@contextlib.contextmanager
def guarded() -> Iterator[Output]:
    """Inside, what goes to the standard streams never raises; the standard output."""
    before = sys.stdout, sys.stderr
    out = Output(sys.stdout)
    sys.stdout, sys.stderr = out, Output(sys.stderr)
    try:
        yield out
    finally:
        out.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
