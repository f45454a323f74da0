"""What the demo found, as one page that opens without a network (index.html): its parts are those of a report."""

import base64
import datetime
import html
import io
import shlex
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, to_hex
from matplotlib.figure import Figure

from sombrl.algorithms.gp_icem import GPICEMConfig
from sombrl.config.run import RunConfig
from sombrl.demo.states import EPISODE_MAP, SIGMA_MAP, draw_dots, draw_sigma, draw_visited
from sombrl.demo.story import HEADINGS, Outcome, Story
from sombrl.report.curves import curve
from sombrl.report.loading import Record
from sombrl.report.markup import asset, fill, row, script_json, style, table
from sombrl.runs.colors import places
from sombrl.runs.plots import drawing
from sombrl.storage.provenance import versions


def write_page(
    path: Path,
    stories: list[Story],
    outcomes: list[Outcome],
    command: list[str],
    run_config: RunConfig,
    config: GPICEMConfig,
) -> None:
    """One file with everything in it."""
    folder = path.parent
    runs = [str(folder / story.strategy) for story in stories]
    go_on = [
        shlex.join(["sombrl", "plot", *runs]),
        shlex.join(["sombrl", "eval", runs[0], "--explore", "--video", str(folder / "car.gif")]),
        shlex.join(["sombrl", "resume", runs[0], "--episodes", str(2 * run_config.episodes)]),
    ]
    with drawing("the demo"):
        fields = {
            "style": style(),
            "looks": _looks(stories),
            "outcomes": _table(outcomes),
            "visited": "".join(_visited(story) for story in stories),
            "maps": "".join(_maps(story) for story in stories),
            "large": "".join(_figure(story.strategy, f'alt="" data-strategy="{story.strategy}"') for story in stories),
            "episode_scale": _gradient(EPISODE_MAP),
            "sigma_scale": _gradient(SIGMA_MAP),
            "episodes": str(len(stories[0].sigma)),
            "command": html.escape(shlex.join(command)),
            "go_on": html.escape("\n".join(go_on)),
            "settings": html.escape(_settings(run_config, config)),
            "data": script_json([_curve(story, look) for story, look in zip(stories, _places(stories), strict=True)]),
            "charts": asset("charts.js"),
        }
    path.write_text(fill(asset("page.html", "sombrl.demo"), fields), encoding="utf-8")


def _table(outcomes: list[Outcome]) -> str:
    """A column per strategy: that fits on a phone."""
    names, *lines = zip(HEADINGS, *(outcome.cells for outcome in outcomes), strict=True)
    caption = (
        "Return: each seed's median over its last three episodes; of these the median over seeds [worst seed, best "
        "seed]. First: the median over the seeds that found it."
    )
    return table(caption, names, [row(*line) for line in lines])


def _curve(story: Story, look: int) -> dict[str, object]:
    """The returns as a chart of the report takes them: the median over seeds, and the seeds."""
    episodes = np.arange(1.0, 1 + len(story.returns))
    seeds = {seed: Record(episodes, episodes, column) for seed, column in enumerate(story.returns.T)}
    found = curve(seeds, lines=True)
    return {
        "name": story.strategy,
        "look": look,
        "x": found["x"],
        "y": found["q"],
        "n": found["n"],
        "seeds": found.get("s", []),
    }


def _places(stories: list[Story]) -> list[int]:
    return places([story.strategy for story in stories])


def _looks(stories: list[Story]) -> str:
    """The name of a strategy in its colour, in the text and over its column of the table."""
    return "\n".join(
        f".{story.strategy}, thead th:nth-child({2 + n}) {{ color: var(--m{look}); font-weight: 650; }}"
        for n, (story, look) in enumerate(zip(stories, _places(stories), strict=True))
    )


def _visited(story: Story) -> str:
    figure, axes = _canvas()
    draw_visited(axes, story, ink="#808080")
    return _figure(story.strategy, f'src="{_address(figure)}" alt="states visited by {story.strategy}"')


def _maps(story: Story) -> str:
    """Small multiples of σ before each episode."""
    figures = "".join(
        f'<figure><img id="{story.strategy}-{n + 1}" src="{_map(story, n)}" '
        f'alt="σ of {story.strategy} before episode {n + 1}"><figcaption>{n + 1}</figcaption></figure>'
        for n in range(len(story.sigma))
    )
    return f'<h3 class="{story.strategy}">{story.strategy}</h3><div class="maps">{figures}</div>'


def _map(story: Story, n: int) -> str:
    figure, axes = _canvas()
    draw_sigma(axes, story, n)
    draw_dots(axes, story.visited[:n], "black", 10.0, "white")
    draw_dots(axes, story.visited[n : n + 1], "white", 17.0, "black")
    return _address(figure)


def _figure(strategy: str, image: str) -> str:
    return f'<figure><figcaption class="{strategy}">{strategy}</figcaption><img {image}></figure>'


def _canvas() -> tuple[Figure, Axes]:
    """A figure that its axes fill."""
    figure = Figure(figsize=(5, 3.75), dpi=96)
    return figure, figure.add_axes((0, 0, 1, 1))


def _address(figure: Figure) -> str:
    """A drawing without its frame, which is half outside, as a data address."""
    figure.axes[0].spines[:].set_visible(False)
    file = io.BytesIO()
    figure.savefig(file, format="webp", transparent=True, pil_kwargs={"quality": 85})
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"


def _gradient(colormap: Colormap) -> str:
    return f"linear-gradient(90deg, {', '.join(to_hex(colormap(x)) for x in np.linspace(0, 1, 12))})"


def _settings(run_config: RunConfig, config: GPICEMConfig) -> str:
    found = versions("sombrl", "jax")
    return (
        f"gp-icem on {run_config.env}: {run_config.episode_length} decisions of {run_config.action_repeat} frames an "
        f"episode, the first with random actions; λ = {config.explore.bonus_weight:g} of the range of rewards; GP of "
        f"rank {config.gp.rank}; iCEM with "
        f"{config.icem.num_samples} candidates, {config.icem.iterations} iterations, horizon {config.icem.horizon}. "
        f"sombrl {found['sombrl']}, jax {found['jax']}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}."
    )
