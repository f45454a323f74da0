"""Files of the repository as pages of the site, so that a link to one leads somewhere and is checked.

A page of docs/ names sources, examples and results as they lie beside it: `../src/sombrl/agent.py`. What is linked is
mounted under repository/, whatever it links to as well, and the links are rewritten: Markdown stays Markdown, code and
other text becomes a page that shows it, so does a notebook, a folder a page that lists it, and the rest is copied.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|data:|#)([^)\s#]+)(?=(?:#[^)\s]*)?\))")
NOTEBOOK = ".ipynb"
CODE = {".py": "python", ".toml": "toml", ".in": "text", ".txt": "text", ".cff": "yaml", "": "text"}
ROOT = "repository"

_sources: dict[str, str] = {}
"""The path in the repository of every page with links of its own."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Mount what the pages link to, and what that links to."""
    base = Path(config.docs_dir).parent
    docs = Path(config.docs_dir).name
    _sources.clear()
    _sources.update({file.src_uri: f"{docs}/{file.src_uri}" for file in files.documentation_pages()})
    waiting = [(path, (base / path).read_text("utf-8")) for path in _sources.values()]
    waiting.append(("", "".join(f"[.]({path})" for path in _mounted(config.nav))))
    while waiting:
        path, text = waiting.pop()
        for target in {_resolve(path, link) for link in LINK.findall(text)}:
            uri = _uri(base, target)
            if target.startswith(f"{docs}/") or uri in files.src_uris or not (base / target).exists():
                continue  # a missing one is left to the check of links
            content = _content(base, target)
            if content is None:
                files.append(File.generated(config, uri, abs_src_path=str(base / target)))
                continue
            files.append(File.generated(config, uri, content=content))
            if Path(target).suffix not in CODE or (base / target).is_dir():
                _sources[uri] = f"{target}/index.md" if (base / target).is_dir() else target
                waiting.append((_sources[uri], content))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Point links at where their targets are on the site."""
    base, uri = Path(config.docs_dir).parent, page.file.src_uri
    docs = Path(config.docs_dir).name
    if uri not in _sources:
        return markdown

    def moved(match: re.Match) -> str:
        target = _resolve(_sources[uri], match.group(1))
        there = target.removeprefix(f"{docs}/") if target.startswith(f"{docs}/") else _uri(base, target)
        return posixpath.relpath(there, posixpath.dirname(uri) or ".")

    return LINK.sub(moved, markdown)


def _mounted(nav: Any) -> list[str]:
    """What the navigation itself takes from the repository."""
    if isinstance(nav, str):
        path = nav.removeprefix(f"{ROOT}/")
        return [path.replace(f"{NOTEBOOK}.md", NOTEBOOK)] if nav.startswith(f"{ROOT}/") else []
    values = nav.values() if isinstance(nav, dict) else nav or []
    return [path for value in values for path in _mounted(value)]


def _resolve(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _uri(base: Path, target: str) -> str:
    """Where a file or folder of the repository is mounted."""
    if (base / target).is_dir():
        return f"{ROOT}/{target}/index.md"
    shown = Path(target).suffix in {*CODE, NOTEBOOK}
    return f"{ROOT}/{target}.md" if shown else f"{ROOT}/{target}"


def _content(base: Path, target: str) -> str | None:
    """The page of a file or folder; None for what is only copied."""
    path = base / target
    if path.is_dir():
        names = sorted(each.name for each in path.iterdir() if not each.name.startswith((".", "_")))
        return _page(target, "\n".join(f"- [{name}]({name})" for name in names))
    if path.suffix == ".md":
        return path.read_text("utf-8")
    if path.suffix == NOTEBOOK:
        return "\n\n".join(_cell(cell) for cell in json.loads(path.read_text("utf-8"))["cells"])
    if path.suffix in CODE:
        return _page(target, f"````{CODE[path.suffix]}\n{path.read_text('utf-8')}\n````")
    return None


def _cell(cell: dict[str, Any]) -> str:
    """A cell of a notebook, with what it has printed and drawn."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    parts = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            parts.append(f"![What the cell draws](data:image/png;base64,{data['image/png']})")
        else:
            text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
            parts.append(f"```text\n{text}\n```")
    return "\n\n".join(parts)


def _page(title: str, body: str) -> str:
    return f"---\nsearch:\n  exclude: true\n---\n\n# {title}\n\n{body}\n"
