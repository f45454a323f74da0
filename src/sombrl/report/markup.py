"""HTML as text: tables, lists, and the files that a page is put together from."""

import html
import importlib.resources
import json
from collections.abc import Iterable, Mapping
from string import Template
from typing import Any

from sombrl.runs.colors import ON_BLACK, ON_WHITE


class Html(str):
    """Markup that stands as it is. Any other text is escaped."""


def text(value: object) -> str:
    """A value in a page: nothing in it is markup."""
    return value if isinstance(value, Html) else html.escape(str(value))


def table(caption: str, heads: Iterable[str], rows: Iterable[str]) -> str:
    """A table that scrolls by itself where it is too wide."""
    columns = "".join(f'<th scope="col">{text(head)}</th>' for head in heads)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}"><table>'
        f"<caption>{text(caption)}</caption><thead><tr>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def row(head: object, *cells: object, small: str = "", before: str = "") -> str:
    """A row of a table: its header, with a second line in small print, and its cells. A cell that is Html is whole.

    `before` is the header of several rows, in the first of them.
    """
    below = f"<small>{text(small)}</small>" if small else ""
    columns = "".join(cell if isinstance(cell, Html) else f"<td>{text(cell)}</td>" for cell in cells)
    return f'<tr>{before}<th scope="row">{text(head)}{below}</th>{columns}</tr>'


def number_cell(value: object, small: str = "", look: str = "") -> Html:
    """A cell that does not wrap, with a note in small print; `look` are CSS variables that shade it."""
    shade = f' shaded" style="{look}' if look else ""
    note = f" <small>{text(small)}</small>" if small else ""
    return Html(f'<td class="number{shade}">{text(value)}{note}</td>')


def bullet_list(sentences: Iterable[str]) -> str:
    """Sentences as a list."""
    return f"<ul>{''.join(f'<li>{text(sentence)}</li>' for sentence in sentences)}</ul>"


def fold(title: str, content: str) -> str:
    """Content that is shown when its title is pressed."""
    return f"<details><summary>{text(title)}</summary>{content}</details>"


def asset(name: str, package: str = "sombrl.report") -> str:
    """A file that lies beside the source."""
    return importlib.resources.files(package).joinpath(name).read_text(encoding="utf-8")


def style() -> str:
    """The style sheet of a page, with the colours of the methods as --m0, --m1, …"""
    palettes = {"light": ON_WHITE, "dark": ON_BLACK}
    variables = {
        name: " ".join(f"--m{n}: {color};" for n, color in enumerate(colors)) for name, colors in palettes.items()
    }
    return fill(asset("page.css"), variables)


def fill(template: str, fields: Mapping[str, object]) -> str:
    """A template with every $name in it replaced."""
    return Template(template).substitute(fields)


def script_json(content: Any) -> str:
    """JSON that can stand in a script element: nothing in it closes the element."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
