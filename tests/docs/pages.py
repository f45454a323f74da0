"""The pages of the documentation, and the code on them."""

import dataclasses
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "results/README.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FENCE = re.compile(r"^(?:<!-- not run: (?P<reason>[^\n]*) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block. `reason` says why it is not run, in a comment on the line above the fence."""

    page: str
    language: str
    code: str
    reason: str | None


def name_of(page: Path) -> str:
    """Its path in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """Those of one language, or all."""
    found = [
        Block(name_of(page), match["language"], match["code"], match["reason"])
        for match in FENCE.finditer(page.read_text())
    ]
    return [block for block in found if language in (None, block.language)]


def to_run(page: Path, language: str) -> list[str]:
    """The code that claims to run."""
    return [block.code for block in blocks(page, language) if block.reason is None]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)


def code_spans(page: Path) -> list[str]:
    """Inline code."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def commands(page: Path) -> list[list[str]]:
    """The commands of the bash blocks as words: comments gone, continued lines joined, `a && b` taken apart."""
    lines = "".join(to_run(page, "bash")).replace("\\\n", " ").splitlines()
    words = [shlex.split(part, comments=True) for line in lines for part in line.split("&&")]
    return [without_settings(argv) for argv in words if argv]


def without_settings(argv: list[str]) -> list[str]:
    """A command without the `NAME=value` before it."""
    while argv and re.fullmatch(r"[A-Z][A-Z0-9_]*=.*", argv[0]):
        argv = argv[1:]
    return argv
