"""A table of results as Parquet: the columns of the CSV, each with its type."""

import io
from collections.abc import Sequence
from typing import Any

from sombrl.optional import require

TEXTS = ("experiment", "method", "env", "setting", "metric")
COUNTS = ("seed", "env_frames", "decisions")


def parquet_bytes(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """The file's content: texts as strings, counts as int64, all else as float64."""
    missing = "a .parquet file needs pyarrow: pip install 'sombrl[parquet]', or write a .csv."
    pyarrow, parquet = (require(module, "pyarrow", missing) for module in ("pyarrow", "pyarrow.parquet"))
    types = [
        pyarrow.string() if name in TEXTS else pyarrow.int64() if name in COUNTS else pyarrow.float64()
        for name in columns
    ]
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    table = pyarrow.table([pyarrow.array(v, t) for v, t in zip(values, types, strict=True)], names=list(columns))
    content = io.BytesIO()
    parquet.write_table(table, content)
    return content.getvalue()
