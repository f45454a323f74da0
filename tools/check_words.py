"""Finds words that the style page of CONTRIBUTING.md asks to replace, in pages, help, errors and docstrings.

python tools/check_words.py             # prints each place, the word, and what to write; exits with 1 if there is one
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INSTEAD = {
    r"\bexplor\w+ on purpose": "plans for r + λ‖σ‖",
    r"knows? what (it|they) do(es)? not know": "has epistemic uncertainty σ",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bdear(er|est)?\b": "expensive",
    r"\b(luckiest|(may be|picks?|its?) luck(y)?|luck (chosen|averaged))\b": "the most favourable; or: sampled",
    r"\bas curious as\b": "λ is tuned so that ... matches ...",
    r"\bis believed\b": "is one posterior sample",
    r"\b(not )?to the bit\b": "bit-exact, not bit-identical",
    r"(?<!there )(?<!There )\bis no (?!longer|more|less|flatter|better|worse|reason)\w": "is not a",
    r"what is wanted": "the task: reward and termination",
    r"\band hope\b": "certainty-equivalent planning",
    r"numbers? that (is|are) none": "non-finite values",
    r"curiosity drowns": "the bonus dominates the reward",
    r"\bin the small\b": "with little data",
    r"[Ww]ho may know whom": "module dependencies",
    r"\bdoes nothing gets\b": "a zero-action policy scores",
    r"so likely does": "probability",
    r"\bis nicer than\b": "runs at lower priority",
    r"has brought\b": "record ...'s metrics",
    r"teaches nobody": "frozen copy: no gradients",
    r"from a hat": "random",
}

NOT_LOOKED_AT = ("CHANGELOG.md", "CONTRIBUTING.md")


def found(text: str) -> list[tuple[int, str, str]]:
    """Line, word and what to write instead."""
    hits = []
    for number, line in enumerate(text.splitlines(), 1):
        hits += [(number, hit[0], instead) for word, instead in INSTEAD.items() if (hit := re.search(word, line))]
    return hits


def files() -> list[Path]:
    """Pages and sources that git knows."""
    named = ["*.md", "src/*.py", "notebooks/*.ipynb", "examples/*.py", "docs/assets/*.html"]
    listed = subprocess.run(["git", "ls-files", *named], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.splitlines() if name not in NOT_LOOKED_AT]


if __name__ == "__main__":
    hits = [(path, *hit) for path in files() if path.exists() for hit in found(path.read_text())]
    for path, number, word, instead in hits:
        print(f"{path.relative_to(ROOT)}:{number}: {word!r}; write: {instead}")
    sys.exit(bool(hits))
