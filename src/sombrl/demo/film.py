"""The demo as a film (demo.gif): greedy and optimistic side by side, the car above, the model's σ below.

Drawn with Pillow: two hundred pictures take matplotlib half a minute, and Pillow two seconds.
"""

from pathlib import Path

import numpy as np
from matplotlib import font_manager
from PIL import Image, ImageColor, ImageDraw, ImageFont

from sombrl.demo.states import SIGMA_MAP, SIGMA_MAX
from sombrl.demo.story import Story
from sombrl.envs.mountain_car import GOAL_POSITION, MAX_POSITION, MAX_SPEED, MIN_POSITION
from sombrl.runs.colors import ON_WHITE, places

SIZE = (728, 436)
FINE = 2  # drawn so many times as large, for smooth edges
PANEL, GAP, LEFT = 320, 40, 24
HILL = (40, 166)  # from, to: pixels from the top
MAP = (174, 396)
STRIDE = 2  # decisions from picture to picture
MOMENT, LONG, END = 70, 900, 3000
"""Milliseconds of a picture, of the end of an episode, and of the end of the film."""
GRASS, SOIL = "#5b7045", "#dfe5d8"
PLANS = {"optimistic": "plans for r + λ‖σ‖", "greedy": "plans for r"}
INK, QUIET = "#222222", "#666666"
Point = tuple[float, float]


def write_film(path: Path, stories: list[Story]) -> None:
    """Every episode of the first seeds, in one palette so that a picture holds only what has changed."""
    stories = sorted(stories, key=lambda story: story.strategy)  # greedy on the left: the eye ends at what works
    episodes = len(stories[0].sigma)
    pictures, times = [], []
    for n in range(episodes):
        behind = [_map(story, n) for story in stories]
        decisions = max(len(story.visited[n][0]) for story in stories)
        moments = [*range(0, decisions - 1, STRIDE), decisions - 1]
        for moment in moments:
            pictures.append(_picture(stories, behind, n, moment, ended=moment == moments[-1]))
            times.append(MOMENT if moment < moments[-1] else LONG)
    times[-1] = END
    palette = _palette([story.strategy for story in stories])
    flat = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    flat[0].save(path, save_all=True, append_images=flat[1:], duration=times, loop=0, optimize=True)


def _palette(strategies: list[str]) -> Image.Image:
    """The map's colours, and each of ours with its edges towards white; fewer than 256, for what has not changed."""
    colors = [(255 * np.asarray(SIGMA_MAP(share))[:3]) for share in np.linspace(0, 1, 72)]
    colors.append(np.array(ImageColor.getrgb(SOIL)))  # whose edges would be taken for white
    for own in ("black", INK, QUIET, GRASS, *_colors(strategies)):
        full = np.array(ImageColor.getrgb(own))
        colors += [share * full + (1 - share) * 255 for share in np.linspace(0, 1, 7)]
    image = Image.new("P", (1, 1))
    image.putpalette(np.array(colors).round().astype(np.uint8).tobytes())
    return image


def _colors(strategies: list[str]) -> list[str]:
    return [ON_WHITE[place] for place in places(strategies)]


def _picture(stories: list[Story], behind: list[Image.Image], n: int, moment: int, ended: bool) -> Image.Image:
    picture = Image.new("RGB", (SIZE[0] * FINE, SIZE[1] * FINE), "white")
    draw = ImageDraw.Draw(picture)
    colors = _colors([story.strategy for story in stories])
    for column, (story, color) in enumerate(zip(stories, colors, strict=True)):
        left = LEFT + column * (PANEL + GAP)
        states = story.visited[n][0][: moment + 1]
        draw.text(_fine(left, 8), story.strategy, color, _font(20, bold=True))
        draw.text(_fine(left + PANEL, 11), PLANS.get(story.strategy, ""), QUIET, _font(17), anchor="ra")
        _draw_car(draw, left, float(states[-1][0]), color)
        picture.paste(behind[column], (left * FINE, MAP[0] * FINE))
        for state in states:
            x, y = _place(left, state)
            draw.ellipse((x - 6, y - 6, x + 6, y + 6), "white", "black", 2)
        if ended:
            said = f"return {story.returns[n, 0]:,.0f}".replace("-0", "0").replace("-", "−")
            draw.text(_fine(left + 8, HILL[0] + 6), said, INK, _font(17))
    draw.text(_fine(LEFT, 407), f"episode {n + 1} of {len(stories[0].sigma)}", INK, _font(18, bold=True))
    _draw_scale(draw)
    return picture.reduce(FINE)


def _map(story: Story, n: int) -> Image.Image:
    """The first seed's ‖σ‖ before an episode, with the data behind it and the goal."""
    colors = np.asarray(SIGMA_MAP(story.sigma[n][::-1] / SIGMA_MAX))[..., :3]  # the fastest row on top
    small = Image.fromarray((255 * colors).astype(np.uint8))
    image = small.resize((PANEL * FINE, (MAP[1] - MAP[0]) * FINE), Image.Resampling.BILINEAR)
    draw = ImageDraw.Draw(image)
    goal = _across(GOAL_POSITION) * FINE
    for top in range(0, image.height, 24):
        draw.line((goal, top, goal, top + 13), "white", 3)
    for states in story.visited[:n]:
        for state in states[0]:
            x, y = (a - b for a, b in zip(_place(0, state), _fine(0, MAP[0]), strict=True))
            draw.ellipse((x - 5, y - 5, x + 5, y + 5), "black", "white", 1)
    return image


def _draw_car(draw: ImageDraw.ImageDraw, left: float, position: float, color: str) -> None:
    positions = np.linspace(MIN_POSITION, MAX_POSITION, 100)
    ground = [_on_hill(left, x) for x in positions]
    draw.polygon([*ground, _fine(left + PANEL, HILL[1]), _fine(left, HILL[1])], SOIL)
    draw.line(ground, GRASS, 4)
    x, y = _on_hill(left, GOAL_POSITION)
    draw.line((x, y, x, y - 56), INK, 4)
    draw.polygon([(x, y - 56), (x + 26, y - 47), (x, y - 38)], INK)
    (x0, y0), (x1, y1) = _on_hill(left, position - 0.03), _on_hill(left, position + 0.03)
    along = np.array([x1 - x0, y1 - y0]) / np.hypot(x1 - x0, y1 - y0)
    up = np.array([along[1], -along[0]])
    here = np.array(_on_hill(left, position))
    body = [(-30, 11), (30, 11), (21, 36), (-21, 36)]
    draw.polygon([tuple(here + a * along + b * up) for a, b in body], color)
    for a in (-17, 17):
        x, y = here + a * along + 9 * up
        draw.ellipse((x - 9, y - 9, x + 9, y + 9), INK)


def _draw_scale(draw: ImageDraw.ImageDraw) -> None:
    """What the colours are."""
    left, top, width = SIZE[0] - 320, 413, 130
    draw.text(_fine(left - 8, 407), "‖σ‖  known", QUIET, _font(16), anchor="ra")
    for n in range(width * FINE):
        color = tuple(int(255 * part) for part in SIGMA_MAP(n / (width * FINE))[:3])
        draw.line((left * FINE + n, top * FINE, left * FINE + n, (top + 11) * FINE), color, 1)
    draw.text(_fine(left + width + 8, 407), "unknown", QUIET, _font(16))


def _place(left: float, state: np.ndarray) -> Point:
    """A state on the map: position across, velocity up."""
    up = (float(state[1]) + MAX_SPEED) / (2 * MAX_SPEED)
    return _fine(left + _across(float(state[0])), MAP[1] - up * (MAP[1] - MAP[0]))


def _on_hill(left: float, position: float) -> Point:
    height = 0.45 * np.sin(3 * position) + 0.55  # as Gymnasium draws it
    return _fine(left + _across(position), HILL[1] - 8 - float(height) * 84)


def _across(position: float) -> float:
    return (position - MIN_POSITION) / (MAX_POSITION - MIN_POSITION) * PANEL


def _fine(x: float, y: float) -> Point:
    return x * FINE, y * FINE


def _font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Matplotlib's own, which is wherever matplotlib is."""
    look = font_manager.FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    file = font_manager.findfont(look)
    return ImageFont.truetype(file, size * FINE)
