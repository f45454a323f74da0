"""Runs the cells of notebooks and writes down what they print and draw; needs no notebook software.

python tools/run_notebooks.py notebooks/*.ipynb
"""

import ast
import base64
import contextlib
import copy
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt  # after the choice of a backend without a window


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the output of its cells, run from top to bottom in one session, in the current folder."""
    done = copy.deepcopy(notebook)
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in done["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        cell["execution_count"] = number
        cell["outputs"] = _run("".join(cell["source"]), names, number)
    return done


def _run(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    printed, value = io.StringIO(), None
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), f"<cell {number}>", "exec"), names)
        if last is not None:
            value = eval(compile(last, f"<cell {number}>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(True)})
    if value is not None and not source.rstrip().endswith(";"):
        data = {"text/plain": repr(value).splitlines(True)}
        outputs.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
    for figure in map(plt.figure, plt.get_fignums()):
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=70, bbox_inches="tight")
        data = {"image/png": base64.b64encode(png.getvalue()).decode(), "text/plain": ["<Figure>"]}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    plt.close("all")
    return outputs


def write(path: Path, notebook: dict[str, Any]) -> None:
    """As Jupyter writes it."""
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for path in [Path(name).resolve() for name in sys.argv[1:]]:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            notebook = executed(json.loads(path.read_text()))
        write(path, notebook)
        print(f"wrote {os.path.relpath(path)}")
