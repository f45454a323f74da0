"""Pictures of the RC car from above: the field, the car, and the path of an episode."""

from collections.abc import Sequence
from typing import Any

import numpy as np

FIELD = ((-1.4, 2.8), (-2.6, 1.5))  # m, of the published motion capture
VIEW = ((-1.1, 2.5), (-1.65, 0.75))  # m, what is seen unless the car leaves it
LENGTH, WIDTH = 0.44, 0.22  # m, of the body
AXLES = (0.13, -0.17)  # m, front and rear, from the centre of mass
WHEEL_LENGTH, WHEEL_WIDTH = 0.11, 0.045
BODY, WHEEL, TARGET, PATH = "#4c72b0", "0.15", "#3a8a4d", "#dd8452"


def draw_field(axes: Any, goal: Sequence[float] | np.ndarray, *, poses: np.ndarray | None = None) -> None:
    """The floor with lines every half metre and the goal pose; the view holds `poses` [time, x y θ] as well."""
    (left, right), (low, high) = VIEW
    if poses is not None:
        x, y = np.asarray(poses)[:, 0], np.asarray(poses)[:, 1]
        left, right = min(left, x.min() - LENGTH), max(right, x.max() + LENGTH)
        low, high = min(low, y.min() - LENGTH), max(high, y.max() + LENGTH)
    axes.set_facecolor("0.93")
    (x0, x1), (y0, y1) = FIELD
    axes.fill([x0, x1, x1, x0], [y0, y0, y1, y1], color="#fbfbf8", linewidth=0, zorder=0)
    for line in np.arange(x0, x1, 0.5):
        axes.plot([line, line], [y0, y1], color="0.9", linewidth=0.8, zorder=0)
    for line in np.arange(y0, y1, 0.5):
        axes.plot([x0, x1], [line, line], color="0.9", linewidth=0.8, zorder=0)
    outline = _place(_box(LENGTH + 0.1, WIDTH + 0.1), goal)
    axes.fill(outline[:, 0], outline[:, 1], color=TARGET, alpha=0.15, linewidth=0, zorder=1)
    axes.plot(*np.vstack([outline, outline[:1]]).T, color=TARGET, linewidth=1.5, linestyle=(0, (4, 2)), zorder=1)
    tip, foot = _place(np.array([[0.62, 0.0], [0.3, 0.0]]), goal)
    style = {"arrowstyle": "-|>", "color": TARGET, "linewidth": 1.5}
    axes.annotate("", xy=tip, xytext=foot, arrowprops=style, zorder=1)
    box = axes.get_window_extent()  # what is too narrow for these axes is widened, so that the floor fills them
    missing = (high - low) * box.width / box.height - (right - left)
    sideways, upwards = max(missing, 0.0) / 2, max(-missing * box.height / box.width, 0.0) / 2
    axes.set(xlim=(left - sideways, right + sideways), ylim=(low - upwards, high + upwards))
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(False)


def draw_car(axes: Any, pose: Sequence[float] | np.ndarray, *, steer: float = 0.0, faint: bool = False) -> None:
    """A car at a pose (x, y, θ), its front wheels turned by `steer` rad; `faint` leaves an outline of it."""
    corners = _place(_box(LENGTH, WIDTH), pose)
    if faint:
        axes.plot(*np.vstack([corners, corners[:1]]).T, color=BODY, linewidth=0.8, alpha=0.35, zorder=2)
        return
    for axle, turn in zip(AXLES, (steer, 0.0), strict=True):
        for side in (-0.5, 0.5):
            centre = _place(np.array([[axle, side * (WIDTH + 0.02)]]), pose)[0]
            wheel = _place(_box(WHEEL_LENGTH, WHEEL_WIDTH), (centre[0], centre[1], float(pose[2]) + turn))
            axes.fill(wheel[:, 0], wheel[:, 1], color=WHEEL, zorder=4)
    axes.fill(corners[:, 0], corners[:, 1], color=BODY, zorder=5)
    nose = _place(np.array([[0.19, 0.0], [0.06, 0.075], [0.06, -0.075]]), pose)
    axes.fill(nose[:, 0], nose[:, 1], color="white", zorder=6)


def draw_path(axes: Any, poses: np.ndarray) -> None:
    """Where the car was: a line through `poses` [time, x y θ]."""
    poses = np.asarray(poses)
    axes.plot(poses[:, 0], poses[:, 1], color=PATH, linewidth=1.8, solid_capstyle="round", zorder=3)


def draw_trajectory(
    axes: Any, poses: np.ndarray, goal: Sequence[float] | np.ndarray = (0.0, 0.0, 0.0), *, every: int = 10
) -> None:
    """A whole episode in one picture: `poses` [time, x y θ], a faint car at every so many, the last one in full."""
    poses = np.asarray(poses)
    draw_field(axes, goal, poses=poses)
    for pose in poses[:-1:every]:
        draw_car(axes, pose, faint=True)
    draw_path(axes, poses)
    draw_car(axes, poses[-1])


def _box(length: float, width: float) -> np.ndarray:
    return 0.5 * np.array([[length, width], [-length, width], [-length, -width], [length, -width]])


def _place(points: np.ndarray, pose: Sequence[float] | np.ndarray) -> np.ndarray:
    """Points of the car, [points, 2], where the car is."""
    x, y, theta = (float(number) for number in pose)
    turn = np.array([[np.cos(theta), np.sin(theta)], [-np.sin(theta), np.cos(theta)]])
    return np.asarray(points @ turn + np.array([x, y]))
