"""Films trained agents for docs/gallery.md, with what each one was trained by and what the filmed episode earned.

python tools/make_gallery.py runs    # films the runs in this folder that are named as below; other films stay
python tools/make_gallery.py         # writes the page alone, from docs/gallery/films.json

A film is that of `sombrl eval RUN --episodes 1 --video FILM.gif`, made smaller.
"""

import dataclasses
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from sombrl.report.wording import number
from sombrl.runs.evaluate import evaluate_run
from sombrl.storage.run_folder import RunFolder

ROOT = Path(__file__).resolve().parents[1]
PAGE, FILMS = ROOT / "docs" / "gallery.md", ROOT / "docs" / "gallery"
NUMBERS = FILMS / "films.json"
WIDTH, COLOURS = 360, 64
HEADER = """# Gallery

Trained agents, each with its command, its seed and what the filmed episode earned. An episode is planned for the task
alone, on a start that was not trained on, as by `sombrl eval RUN --video film.gif`. One seed is an anecdote:
[benchmarks](benchmarks.md) have the statistics. *Written by `tools/make_gallery.py` from the runs.*

## Optimistic and greedy, while they learn

![Greedy and optimistic side by side: the car above, the model's uncertainty below, over eight episodes](demo.gif)

```bash
sombrl demo
```

The first of five seeds, every episode of its training. Greedy never leaves the valley, because nothing there tells it
to. White dots: the episode. Black dots: the data before it. Yellow: unknown to the model.
"""


@dataclasses.dataclass(frozen=True)
class Film:
    """A film of the page: the name of its run and of its file, and what there is to see."""

    name: str
    title: str
    seen: str
    said: str
    file: str = ""

    @property
    def path(self) -> str:
        """Where it lies, from docs/."""
        return self.file or f"gallery/{self.name}.gif"


SHOWN = (
    Film(
        "parking",
        "An RC car parks",
        "A car drives a curve, stops, and backs into the place",
        "The simulated car of the paper, after five episodes of training. "
        "[Settings and results](reproducing.md#figure-4-right-parking-an-rc-car).",
        "parking.gif",
    ),
    Film(
        "swing-up",
        "A pendulum swings up",
        "A pendulum swings to the left, then up, and stays there",
        "The motor is too weak to lift it at once. 400 decisions of experience.",
    ),
    Film(
        "mountain-car",
        "MountainCar climbs",
        "A car rolls back to the left, gains speed and drives up the hill to the flag",
        "Only the hilltop pays. 400 decisions of experience.",
    ),
    Film(
        "wall",
        "Around the wall",
        "A point moves around a wall to the goal behind it",
        "The straight way to the goal is blocked.",
    ),
    Film(
        "without-budget",
        "A speed limit, ignored",
        "A pendulum swings up and stays there",
        "The pendulum has a limit of 7 rad/s. Costs are counted, and nothing is avoided.",
    ),
    Film(
        "within-budget",
        "A speed limit, kept",
        "A pendulum swings up and stays there, within its limit",
        "The same with a budget of 0.9, below one violation, in every episode: [safe exploration](safety.md).",
    ),
)


def film(run: Path, target: Path) -> dict[str, Any]:
    """Film a run's first seed; what the page says of it."""
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "film.gif"
        evaluate_run(run, episodes=1, video=large)
        shrink(large, target)
    record = json.loads((run / "eval.json").read_text())[-1]
    (seed, earned), *_ = record["returns"].items()
    folder_of = RunFolder.open(run)
    violations = [row.get("safety/violations") for row in folder_of.rows() if row["seed"] == int(seed)]
    return {
        "command": _plain(folder_of.manifest["command"], run.name),
        "seed": int(seed),
        "return": earned[0],
        "trained": record["settings"]["trained"],
        "violations": sum(violations) if all(value is not None for value in violations) else None,
        "versions": folder_of.manifest["versions"],
    }


def parking() -> dict[str, Any]:
    """The same of the car, whose run and film are older than the gallery."""
    record = json.loads((ROOT / "results" / "rccar-parking" / "run.json").read_text())
    manifest, evaluated = record["manifest"], record["eval"][-1]
    return {
        "command": _plain(manifest["command"], "parking"),
        "seed": 0,
        "return": evaluated["returns"]["0"][0],
        "trained": f"{evaluated['settings']['trained_episodes']} episodes",
        "violations": None,
        "versions": manifest["versions"],
    }


def shrink(large: Path, target: Path) -> None:
    """Fewer pixels and colours; a picture holds only what has changed."""
    pictures, times = [], []
    with Image.open(large) as source:
        height = round(source.height * WIDTH / source.width)
        for n in range(source.n_frames):
            source.seek(n)
            pictures.append(source.convert("RGB").resize((WIDTH, height), Image.Resampling.LANCZOS))
            times.append(source.info["duration"])
    palette = pictures[len(pictures) // 2].quantize(COLOURS, dither=Image.Dither.NONE)
    flat = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    times[-1] = 1500
    target.parent.mkdir(exist_ok=True)
    flat[0].save(target, save_all=True, append_images=flat[1:], duration=times, loop=0, optimize=True)


def page(numbers: dict[str, dict[str, Any]]) -> str:
    """The page, of the films that there are."""
    return HEADER + "".join(_part(shown, numbers[shown.name]) for shown in SHOWN if shown.name in numbers)


def _part(shown: Film, numbers: dict[str, Any]) -> str:
    counted = numbers.get("violations")
    broken = "" if counted is None else f" Violations during training: {counted:.0f}."
    return f"""
## {shown.title}

![{shown.seen}]({shown.path})

```bash
{numbers["command"]}
```

{shown.said}

*Seed {numbers["seed"]}, after {numbers["trained"]}. The filmed episode earned {number(numbers["return"])}.{broken}*
"""


def _plain(command: list[str], name: str) -> str:
    """The command, with the run in runs/, in lines that a phone can show."""
    words = list(command)
    if "--out" in words:
        words[words.index("--out") + 1] = f"runs/{name}"
    lines = [shlex.join(words[:3])]
    options = shlex.join(words[3:]).split(" --")
    for option in [options[0], *(f"--{rest}" for rest in options[1:])]:
        if len(lines[-1]) + len(option) > 76:
            lines.append("   ")
        lines[-1] += f" {option}"
    return " \\\n".join(lines)


def main(arguments: list[str]) -> None:
    """Film what is there and write the page."""
    numbers = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    numbers["parking"] = parking()
    for shown in SHOWN:
        for folder in map(Path, arguments):
            if (folder / shown.name / "manifest.json").is_file():
                numbers[shown.name] = film(folder / shown.name, ROOT / "docs" / shown.path)
    NUMBERS.write_text(json.dumps(numbers, indent=1) + "\n")
    PAGE.write_text(page(numbers))


if __name__ == "__main__":
    main(sys.argv[1:])
