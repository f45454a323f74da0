"""Runs scripts one after the other, each in a folder and a namespace of its own, and writes down how each ended.

python -m tests.docs.scripts JOBS OUT, where JOBS is a JSON list of {"name", "script", "folder"} and OUT becomes a JSON
object of name → {"error", "printed"}. One process for all: most of a short script's time is JAX's start.
"""

import contextlib
import io
import json
import os
import runpy
import sys
import traceback
from pathlib import Path


def main(jobs: Path, out: Path) -> None:
    """Run them all, whatever happens to one."""
    ends = {}
    for job in json.loads(jobs.read_text()):
        os.chdir(job["folder"])
        sys.argv = [job["script"], *job.get("arguments", [])]
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                runpy.run_path(job["script"], run_name="__main__")
            error = ""
        except (Exception, SystemExit):
            error = traceback.format_exc()
        ends[job["name"]] = {"error": error, "printed": printed.getvalue()}
    out.write_text(json.dumps(ends))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
