"""What is printed ends no work: any encoding, a reader that went away, a full disk, no stream at all."""

import io
import os
import subprocess
import sys

import pytest

import sombrl
from sombrl.output import Output, encodable, guarded

SRC = {"PYTHONPATH": os.path.dirname(os.path.dirname(sombrl.__file__)), "OPENBLAS_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("text", "encoding", "written"),
    [
        ("λ 3", "utf-8", "λ 3"),
        ("λ 3 · σ", "ascii", "lambda 3 | sigma"),
        ("naïve 日本", "latin-1", "naïve \\u65e5\\u672c"),
        ("lone\ud800", "utf-8", "lone\\ud800"),
        ("λ", None, "λ"),
    ],
)
def test_what_an_encoding_cannot_have_is_written_plainly(text, encoding, written):
    assert encodable(text, encoding) == written
    written.encode(encoding or "utf-8")


class Broken(io.StringIO):
    def write(self, text):
        raise BrokenPipeError(32, "Broken pipe")


def test_after_the_first_failure_a_stream_is_silent():
    out = Output(Broken())
    assert out.write("some words") == 10
    out.write("more")
    out.flush()
    assert isinstance(out.lost, BrokenPipeError)


@pytest.mark.parametrize("stream", [None, "closed"])
def test_a_stream_that_is_not_there(stream):
    if stream == "closed":
        stream = io.StringIO()
        stream.close()
    out = Output(stream)
    out.writelines(["a", "b"])
    out.flush()
    assert not out.isatty()


def test_inside_print_goes_through_it(capsys):
    with guarded() as out:
        print("a λ")
        print("b", file=sys.stderr)
        assert sys.stdout is out and not out.isatty() and out.encoding
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("a λ\n", "b\n") and sys.stdout is not out


def command(words, shell_end="", **env):
    """A command line in a shell."""
    line = f"{sys.executable} -m sombrl {words} {shell_end}"
    return subprocess.run(line, shell=True, capture_output=True, text=True, env={**os.environ, **SRC, **env})


def test_every_command_line_survives_ascii():
    done = command("list presets", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and done.stdout.isascii() and done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
def test_a_full_disk_under_the_standard_output_is_said_and_no_fault_of_ours():
    done = command("list envs", "> /dev/full")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "cannot write to the standard output: No space left on device; the work itself is done" in done.stderr


@pytest.mark.parametrize("end", ["| true", ">&-", "2>&- >&-"])
def test_a_reader_that_is_gone_is_not_a_fault(end):
    done = command("list envs", f"{end}; exit ${{PIPESTATUS:-0}}")
    assert done.stderr == "" and done.returncode == 0


def test_refusals_keep_their_code_without_a_reader():
    assert command("tarin", "2> /dev/full").returncode == 2
