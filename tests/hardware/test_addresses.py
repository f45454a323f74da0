"""Loopback or a Unix socket of mode 0600, and nothing else; only sockets of the dead are removed."""

import os
import socket
import stat

import pytest

from sombrl.hardware.addresses import connected, listening, read_address
from sombrl.records import SombrlError


@pytest.mark.parametrize(
    ("text", "family", "where"),
    [
        ("127.0.0.1:5001", socket.AF_INET, ("127.0.0.1", 5001)),
        ("127.8.9.10:1", socket.AF_INET, ("127.8.9.10", 1)),
        (":5001", socket.AF_INET, ("127.0.0.1", 5001)),
        ("localhost:65535", socket.AF_INET, ("127.0.0.1", 65535)),
        ("[::1]:5001", socket.AF_INET6, ("::1", 5001)),
        ("car", socket.AF_UNIX, "car"),
        ("./a:5001", socket.AF_UNIX, "./a:5001"),
    ],
)
def test_what_is_on_this_machine(text, family, where):
    address = read_address(text)
    assert (address.family, address.where) == (family, where)


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0:5001",
        "0:5001",
        "[::]:5001",
        ":::5001",
        "lab:5001",
        "localhost.evil.org:5001",
        "127.0.0.1.evil.org:5001",
        "192.168.0.7:5001",
        "[::ffff:127.0.0.1]:5001",
        "[::ffff:0.0.0.0]:5001",
        "[::1%lo]:5001",
        "2130706433:5001",
        "127.1:5001",
        "*:5001",
        "user@lab:22",
    ],
)
def test_anything_else_is_told_of_the_tunnel(text):
    with pytest.raises(SombrlError, match=r"ssh -N -L 5001:127\.0\.0\.1:5001 HOST") as caught:
        read_address(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "", "²", "99999999999", "5 "])
def test_a_port_is_a_number(port):
    with pytest.raises(SombrlError, match="between 1 and 65535"):
        read_address(f"127.0.0.1:{port}")


@pytest.mark.parametrize("text", ["", "\0car", "a\0b"])
def test_sockets_without_a_file_are_refused(text):
    """Those of Linux's abstract names have no mode: everybody could open them."""
    with pytest.raises(SombrlError, match="path of a Unix socket or"):
        read_address(text)


def test_an_ip_without_a_port_is_not_a_file():
    with pytest.raises(SombrlError, match="its own machine"):
        read_address("0.0.0.0")


def test_the_socket_is_its_users_alone_and_goes_with_its_server(tmp_path):
    path, before = tmp_path / "car", os.umask(0)
    try:
        with listening(read_address(str(path))):
            found = path.lstat().st_mode
            assert stat.S_ISSOCK(found) and stat.S_IMODE(found) == 0o600
            assert os.umask(0) == 0  # as it was
    finally:
        os.umask(before)
    assert not path.exists()


def test_a_port_is_bound_on_loopback():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    with listening(read_address(f":{port}")) as listener:
        assert listener.getsockname() == ("127.0.0.1", port)
        with (
            pytest.raises(SombrlError, match=r"cannot listen at .*: Address already in use"),
            listening(read_address(f"127.0.0.1:{port}")),
        ):
            pass


@pytest.mark.parametrize("kind", ["file", "empty", "folder", "fifo", "link to a file", "link to nothing"])
def test_what_is_not_a_socket_stays(kind, tmp_path):
    path, precious = tmp_path / "car", tmp_path / "precious.txt"
    precious.write_text("mine")
    make = {
        "file": lambda: path.write_text("mine"),
        "empty": path.touch,
        "folder": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
        "link to a file": lambda: path.symlink_to(precious),
        "link to nothing": lambda: path.symlink_to(tmp_path / "nothing"),
    }
    make[kind]()
    before = path.lstat()
    with pytest.raises(SombrlError, match="it is there and no socket"), listening(read_address(str(path))):
        pass
    assert path.lstat() == before and precious.read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["car", "precious.txt"]


def test_a_link_to_a_socket_stays_and_so_does_the_socket(tmp_path):
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "other"))
    (tmp_path / "car").symlink_to(tmp_path / "other")
    with pytest.raises(SombrlError, match="cannot listen at"), listening(read_address(str(tmp_path / "car"))):
        pass
    assert (tmp_path / "car").is_symlink() and (tmp_path / "other").is_socket()


def test_a_socket_is_taken_over_from_the_dead_alone(tmp_path):
    path = tmp_path / "car"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listening(read_address(str(path))) as listener:  # the file was still there
        with pytest.raises(SombrlError, match="another process serves a car"), listening(read_address(str(path))):
            pass
        connected(read_address(str(path)), 1.0).close()  # the living one was not disturbed
        assert listener.getsockname() == str(path)


def test_what_came_into_its_place_is_not_removed(tmp_path):
    path = tmp_path / "car"
    with listening(read_address(str(path))):
        path.unlink()
        path.write_text("mine")
    assert path.read_text() == "mine"


def test_a_path_that_is_too_long_or_in_no_folder(tmp_path):
    with pytest.raises(SombrlError, match="at most 107 bytes"):
        read_address("/tmp/" + "ä" * 60)
    with pytest.raises(SombrlError, match="No such file"), listening(read_address(str(tmp_path / "no" / "car"))):
        pass
