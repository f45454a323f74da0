"""What the demo found, as one self-contained page (index.html).

The page needs no network and no script: its figures are inline SVG in the page's own colours, so that they
follow the light or dark theme; only the σ maps are bitmaps. JavaScript, where there is, adds a slider.
"""

import base64
import datetime
import html
import io
import shlex
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from sombrl.algorithms.gp_icem import GPICEMConfig
from sombrl.config.run import RunConfig
from sombrl.demo.picture import COLOR, SIGMA_MAP, SIGMA_MAX, episode_color, episode_colormap
from sombrl.demo.story import HEADINGS, Outcome, Story
from sombrl.envs.mountain_car import GOAL_POSITION, MAX_POSITION, MAX_SPEED, MIN_POSITION
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
    episodes = len(stories[0].sigma)
    folder = path.parent
    runs = [str(folder / story.strategy) for story in stories]
    go_on = [
        shlex.join(["sombrl", "plot", *runs]),
        shlex.join(["sombrl", "eval", runs[0], "--explore", "--video", str(folder / "car.gif")]),
        shlex.join(["sombrl", "resume", runs[0], "--episodes", str(2 * run_config.episodes)]),
    ]
    rows = "".join(
        f'<tr class="{outcome.strategy}"><th scope="row">{outcome.strategy}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in outcome.cells[1:])
        + "</tr>"
        for outcome in outcomes
    )
    with drawing("the demo"):
        parts = {
            "heads": "".join(f'<th scope="col">{html.escape(heading)}</th>' for heading in HEADINGS),
            "rows": rows,
            "curves": _curves_svg(stories),
            "visited": "".join(_visited_svg(story) for story in stories),
            "episode_scale": _gradient(episode_colormap()),
            "sigma_scale": _gradient(SIGMA_MAP),
            "episodes": episodes,
            "maps": "".join(_maps(story) for story in stories),
            "steps": "".join(_step(story) for story in stories),
            "command": html.escape(shlex.join(command)),
            "go_on": html.escape("\n".join(go_on)),
            "settings": html.escape(_settings(run_config, config)),
        }
    colors = {story.strategy: COLOR[story.strategy] for story in stories}
    path.write_text(PAGE.substitute(parts, **colors), encoding="utf-8")


def _curves_svg(stories: list[Story]) -> str:
    """Return per episode: thin lines are seeds, thick ones medians."""
    from matplotlib.ticker import MaxNLocator

    width, height, left, bottom = 720, 300, 84, 258
    returns = {story.strategy: story.returns for story in stories}
    episodes = len(stories[0].returns)
    values = np.concatenate([r.ravel() for r in returns.values()])
    low, high = min(values.min(), 0.0), max(values.max(), 1.0)
    low = low - 0.03 * (high - low)
    ticks = [tick for tick in MaxNLocator(5).tick_values(low, high) if low <= tick <= high]

    def x(n):
        return left + (width - left - 16) * (np.asarray(n) / max(episodes - 1, 1))

    def y(value):
        return bottom - (bottom - 12) * (np.asarray(value) - low) / (high - low)

    grid = "".join(
        f'<line class="grid" x1="{left}" x2="{width - 16}" y1="{y(t):.1f}" y2="{y(t):.1f}"/>'
        f'<text class="tick" x="{left - 8}" y="{y(t) + 4:.1f}" text-anchor="end">{round(t, 6):,g}</text>'
        for t in ticks
    )
    step = max(1, round(episodes / 10))
    grid += "".join(
        f'<text class="tick" x="{x(n):.1f}" y="{bottom + 20}" text-anchor="middle">{n + 1}</text>'
        for n in range(0, episodes, step)
    )
    lines = ""
    for name, table in returns.items():
        for column, look in [*((c, "seed") for c in table.T), (np.median(table, axis=1), "median")]:
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x(np.arange(episodes)), y(column), strict=True))
            lines += f'<polyline class="{look} {name}" points="{points}"/>'
            if look == "median":  # one episode has no line
                lines += f'<path class="dot {name}" d="{_dots(points)}"/>'
    label = f'<text class="tick" x="{(left + width) / 2}" y="{bottom + 38}" text-anchor="middle">episode</text>'
    head = f'<svg class="curves" viewBox="0 0 {width} {height}" role="img" aria-label="return per episode">'
    return f"{head}{grid}{lines}{label}</svg>"


def _visited_svg(story: Story) -> str:
    """Every state of every seed, coloured by episode."""
    dots = ""
    for n, states in enumerate(story.visited):
        color, path = episode_color(n, len(story.visited)), _dots(_place(np.concatenate(states)))
        dots += f'<path class="state" stroke="{color}" d="{path}"/>'
    middle = f"translate(-5 {_HEIGHT / 2}) rotate(-90)"
    axes = (
        f'<text class="tick" x="{_WIDTH / 2}" y="{_HEIGHT + 14}" text-anchor="middle">position</text>'
        f'<text class="tick" transform="{middle}" text-anchor="middle">velocity</text>'
        f'<text class="tick" x="{_GOAL - 3:.1f}" y="{_HEIGHT - 4}" text-anchor="end">goal</text>'
    )
    return (
        f'<figure><figcaption class="{story.strategy}">{story.strategy}</figcaption>'
        f'<svg class="states" viewBox="-16 -1 {_WIDTH + 17} {_HEIGHT + 20}" role="img" '
        f'aria-label="states visited by {story.strategy}">'
        f'<rect class="frame" width="{_WIDTH}" height="{_HEIGHT}"/>{dots}'
        f'<line class="goal" x1="{_GOAL:.1f}" x2="{_GOAL:.1f}" y1="0" y2="{_HEIGHT}"/>{axes}</svg></figure>'
    )


def _maps(story: Story) -> str:
    """Small multiples of σ before each episode, the first seed."""
    frames = "".join(
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="σ before episode {n + 1}">'
        f'<g id="{story.strategy}-{n + 1}">{_map(story, n)}</g></svg>'
        f"<figcaption>{n + 1}</figcaption></figure>"
        for n in range(len(story.sigma))
    )
    return f'<h3 class="{story.strategy}">{story.strategy}</h3><div class="maps">{frames}</div>'


def _map(story: Story, n: int) -> str:
    """σ as a bitmap; black dots for the data behind it, white ones for where the agent then went."""
    size = len(story.sigma[n])
    cell_x, cell_y = (
        _WIDTH / (size - 1),
        _HEIGHT / (size - 1),
    )  # grid points lie on the border: cells stick out
    earlier = np.concatenate([np.zeros((0, 2)), *(states[0] for states in story.visited[:n])])
    went = _dots(_place(story.visited[n][0]))
    return (
        f'<image x="{-cell_x / 2}" y="{-cell_y / 2}" width="{cell_x * size}" height="{cell_y * size}" '
        f'preserveAspectRatio="none" href="data:image/png;base64,{_png(story.sigma[n])}"/>'
        f'<path class="data" d="{_dots(_place(earlier))}"/>'
        f'<path class="rim" d="{went}"/><path class="went" d="{went}"/>'
        f'<path class="goal under" d="M{_GOAL:.1f} 0v{_HEIGHT}"/>'
        f'<path class="goal on-map" d="M{_GOAL:.1f} 0v{_HEIGHT}"/>'
    )


def _step(story: Story) -> str:
    """The large map of the slider: it shows one of the small ones."""
    return (
        f'<figure><figcaption class="{story.strategy}">{story.strategy}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="σ of {story.strategy}">'
        f'<use data-strategy="{story.strategy}" href="#{story.strategy}-1"/></svg></figure>'
    )


_WIDTH, _HEIGHT = 240, 180  # the state space in the units of an SVG
_GOAL = _WIDTH * (GOAL_POSITION - MIN_POSITION) / (MAX_POSITION - MIN_POSITION)


def _place(states: np.ndarray) -> str:
    x = _WIDTH * (states[:, 0] - MIN_POSITION) / (MAX_POSITION - MIN_POSITION)
    y = _HEIGHT * (MAX_SPEED - states[:, 1]) / (2 * MAX_SPEED)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _dots(points: str) -> str:
    """A path of dots: strokes of no length with round ends, an element for hundreds of points."""
    return "".join(f"M{point}h.01" for point in points.split())


def _png(sigma: np.ndarray) -> str:
    from matplotlib.image import imsave

    file = io.BytesIO()
    imsave(file, sigma, cmap=SIGMA_MAP, vmin=0, vmax=SIGMA_MAX, origin="lower", format="png")
    return base64.b64encode(file.getvalue()).decode()


def _gradient(colormap: Any) -> str:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    colormap = colormaps[colormap] if isinstance(colormap, str) else colormap
    return "linear-gradient(90deg, " + ", ".join(to_hex(colormap(x)) for x in np.linspace(0, 1, 12)) + ")"


def _settings(run_config: RunConfig, config: GPICEMConfig) -> str:
    found = versions("sombrl", "jax")
    return (
        f"gp-icem on {run_config.env}: {run_config.episode_length} decisions of {run_config.action_repeat} "
        f"frames an episode, λ = 10; GP of rank {config.gp.rank}; "
        f"iCEM with {config.icem.num_samples} candidates, {config.icem.iterations} iterations, "
        f"horizon {config.icem.horizon}. sombrl {found['sombrl']}, jax {found['jax']}, "
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}."
    )


PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>sombrl demo: optimistic against greedy</title>
<style>
:root { --ink: #1d1d1f; --soft: #5f6368; --line: #d9dce0; --paper: #ffffff; --card: #f5f6f8;
        --optimistic: $optimistic; --greedy: $greedy; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececec; --soft: #a3a8ae; --line: #3a3d42; --paper: #17181a; --card: #222427;
          --optimistic: #ff8b3d; --greedy: #56b4e9; }
  path.state, i.episodes { filter: brightness(1.35); }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.1rem 4rem; max-width: 58rem;
       background: var(--paper); color: var(--ink);
       font: 1.05rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .8rem; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .3rem; }
h3 { font-size: 1.05rem; margin: 1rem 0 .3rem; }
p { margin: .4rem 0 .9rem; max-width: 44rem; }
.soft, figcaption, footer { color: var(--soft); font-size: .92rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .5rem .9rem .5rem 0; white-space: nowrap;
         border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 500; font-size: .92rem; }
svg { display: block; width: 100%; height: auto; }
figure { margin: 0; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)); gap: 1.4rem; }
.maps { display: grid; grid-template-columns: repeat(auto-fill, minmax(6rem, 1fr)); gap: .5rem; }
.maps figcaption { text-align: center; }
.scale { display: flex; align-items: center; gap: .7rem; margin: .7rem 0; }
.scale { font-size: .92rem; color: var(--soft); white-space: nowrap; }
.scale i { flex: 0 1 16rem; height: .7rem; border-radius: .35rem; }
:is(h3, b, figcaption).optimistic, .optimistic th { color: var(--optimistic); font-weight: 650; }
:is(h3, b, figcaption).greedy, .greedy th { color: var(--greedy); font-weight: 650; }
.grid, .frame { stroke: var(--line); fill: none; }
.tick { fill: var(--soft); } .curves .tick { font-size: 12px; } .states .tick { font-size: 9px; }
@media (max-width: 40rem) { .curves .tick { font-size: 20px; } }
polyline, path { fill: none; }
.seed { stroke-width: 1; opacity: .45; } .median { stroke-width: 3; stroke-linejoin: round; }
.dot { stroke-width: 7; } .dot, .state, .data, .rim, .went { stroke-linecap: round; }
polyline.optimistic, path.optimistic { stroke: var(--optimistic); }
polyline.greedy, path.greedy { stroke: var(--greedy); }
.state { stroke-width: 2.6; } .data { stroke: #000; stroke-width: 2.6; }
.rim { stroke: #000; stroke-width: 6.4; } .went { stroke: #fff; stroke-width: 4.6; }
.goal { stroke: var(--ink); stroke-dasharray: 5 4; stroke-width: 1.3; } .goal.on-map { stroke: #fff; }
.goal.under { stroke: #000; stroke-dasharray: none; stroke-width: 3; opacity: .35; }
pre { background: var(--card); border-radius: .5rem; padding: .8rem 1rem; overflow-x: auto; }
pre { font-size: .92rem; }
#player { background: var(--card); border-radius: .7rem; padding: 1rem; margin: 1rem 0; }
#player label { display: flex; flex-wrap: wrap; align-items: center; gap: .2rem .9rem; margin-bottom: .8rem; }
#player input { flex: 1 1 12rem; accent-color: var(--optimistic); }
@media print {
  body { max-width: none; padding: 0; } #player { display: none; }
  figure, tr { break-inside: avoid; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
</style>
</head>
<body>
<h1>Optimistic against greedy planning on sparse MountainCar</h1>
<p>The car is too weak to drive up the hill and earns nothing until it is there, so a greedy planner, which
maximises the reward r its model predicts, sees no reason to move. The optimistic planner maximises r + λ‖σ‖,
the same reward plus what its Gaussian-process model does not know yet, and so it tries what is new.</p>

<div class="scroll"><table>
<thead><tr>$heads</tr></thead>
<tbody>$rows</tbody>
</table></div>
<p class="soft">Return: each seed's median over its last three episodes; of these the median over seeds
[worst seed, best seed]. First: the median over the seeds that found it.</p>

<h2>Learning curves</h2>
<p class="soft">Return of each episode. Thick: median over seeds, thin: the seeds;
<b class="optimistic">optimistic</b> and <b class="greedy">greedy</b>.</p>
$curves

<h2>States visited</h2>
<p class="soft">Every state of every seed, coloured by episode. The goal is right of the dashed
line, not rolling back.</p>
<div class="pair">$visited</div>
<div class="scale">episode 1 <i class="episodes" style="background: $episode_scale"></i> $episodes</div>

<h2>What the model does not know</h2>
<p class="soft">‖σ‖ of the first seed's model over the state space (position across, velocity up; action 0),
before each episode. Black: the data behind it. White: where the agent then went. It need not shrink
everywhere at once: the lengthscales are fitted again after every episode.</p>
<div class="scale">0, known <i style="background: $sigma_scale"></i> √2, nothing known</div>
<div id="player" hidden>
<label><span>before episode <output id="shown">1</output> of $episodes</span>
<input id="episode" type="range" min="1" max="$episodes" value="1" step="1"></label>
<div class="pair">$steps</div>
</div>
$maps

<h2>Made with, and how to go on</h2>
<pre>$command</pre>
<p>Both runs are ordinary ones, in the folder of this page: draw them, watch the car, train on.
Without <code>--explore</code> an evaluation plans for the reward alone; as sparse as it is here, the
planner's search may then find it late or not at all, even though the model knows the way.</p>
<pre>$go_on</pre>
<footer>$settings</footer>
<script>
(function () {
  var slider = document.getElementById("episode"), shown = document.getElementById("shown");
  var large = document.querySelectorAll("use[data-strategy]");
  function show() {
    shown.textContent = slider.value;
    large.forEach(function (use) {
      use.setAttribute("href", "#" + use.getAttribute("data-strategy") + "-" + slider.value);
    });
  }
  slider.addEventListener("input", show);
  document.getElementById("player").hidden = false;
  slider.value = Math.min(2, slider.max);
  show();
})();
</script>
</body>
</html>
""")
