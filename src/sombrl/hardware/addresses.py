"""Where a car may be served: on its own machine alone, at a Unix socket of mode 0600 or a port of loopback.

There is no password: from another machine one comes through SSH, which knows who may. Names are not looked up, so that
no name server can say what loopback is.
"""

import contextlib
import dataclasses
import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from typing import Any

from sombrl.errors import SombrlError

LOOPBACK = ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128")
LONGEST_PATH = 107  # bytes, of Linux
BACKLOG = 64


@dataclasses.dataclass(frozen=True)
class Address:
    """A path, or an address of loopback with a port."""

    text: str  # as it was given
    family: socket.AddressFamily
    where: Any  # as the socket takes it

    @property
    def is_path(self) -> bool:
        """Whether it is a Unix socket."""
        return self.family == socket.AF_UNIX


def read_address(text: str) -> Address:
    """127.0.0.1:PORT, [::1]:PORT, localhost:PORT, :PORT, or the path of a Unix socket; anything else is refused."""
    if not text or "\0" in text:  # those without a path have no mode
        raise SombrlError(f"a car's address is the path of a Unix socket or 127.0.0.1:PORT, not {text!r}.")
    if "/" in text or not (":" in text or _is_ip(text)):
        if len(os.fsencode(text)) > LONGEST_PATH:
            raise SombrlError(f"the path of a Unix socket has at most {LONGEST_PATH} bytes: {text[:40]}… is too long.")
        return Address(text, socket.AF_UNIX, text)
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host[:1] + host[-1:] == "[]" else host
    host = "127.0.0.1" if host in ("", "localhost") else host
    if _is_ip(text) or not (_is_ip(host) and any(ipaddress.ip_address(host) in network for network in LOOPBACK)):
        raise SombrlError(
            f"a car is served on its own machine alone, at a Unix socket or at 127.0.0.1, not at {text}: from another "
            "machine make an SSH tunnel (ssh -N -L 5001:127.0.0.1:5001 HOST) and give 127.0.0.1:5001."
        )
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise SombrlError(f"the port of {text} must be a number between 1 and 65535.")
    return Address(text, socket.AF_INET6 if ":" in host else socket.AF_INET, (host, int(port)))


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # no scopes


def connected(address: Address, patience: float) -> socket.socket:
    """A connection to what listens there; OSError if nothing does."""
    connection = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        connection.settimeout(patience)
        connection.connect(address.where)
        at_once(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def at_once(connection: socket.socket) -> None:
    """Send small lines without waiting for more."""
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@contextlib.contextmanager
def listening(address: Address) -> Iterator[socket.socket]:
    """A socket that listens there; one in a folder is removed at the end."""
    with socket.socket(address.family, socket.SOCK_STREAM) as listener:
        ours = None
        try:
            if address.is_path:
                _make_way(address)
                ours = _bind_path(listener, address)
            else:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address.where)
            listener.listen(BACKLOG)
        except OSError as error:
            raise SombrlError(f"cannot listen at {address.text}: {error.strerror or error}.") from error
        try:
            yield listener
        finally:
            if ours is not None:
                with contextlib.suppress(OSError):
                    found = os.lstat(address.where)
                    if stat.S_ISSOCK(found.st_mode) and (found.st_dev, found.st_ino) == ours:
                        os.unlink(address.where)


def _make_way(address: Address) -> None:
    """Remove the socket of a process that is gone. A file of any other kind stays, and so does a link."""
    try:
        found = os.lstat(address.where)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise SombrlError(f"cannot listen at {address.text}: it is there and no socket; choose another path.")
    try:
        connected(address, patience=1.0).close()
    except ConnectionRefusedError:
        os.unlink(address.where)
    except OSError as error:
        raise SombrlError(
            f"cannot tell whether a car is served at {address.text}: {error.strerror or error}."
        ) from error
    else:
        raise SombrlError(f"another process serves a car at {address.text}: end it, or choose another path.")


def _bind_path(listener: socket.socket, address: Address) -> tuple[int, int]:
    """Make the socket; only this user can open it, from the first moment on. Which file it is."""
    before = os.umask(0o177)
    try:
        listener.bind(address.where)
    finally:
        os.umask(before)
    made = os.lstat(address.where)
    if stat.S_IMODE(made.st_mode) & 0o177:
        os.unlink(address.where)
        raise SombrlError(f"the file system of {address.text} cannot keep others out: choose a path on another one.")
    return made.st_dev, made.st_ino
