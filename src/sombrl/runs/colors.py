"""The colour of a method: the same in figures, in reports and in the demo."""

from collections.abc import Sequence

COLORS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
"""Okabe and Ito's: distinct for every kind of colour vision. For figures."""
ON_WHITE = ("#d55e00", "#0072b2", "#009e73", "#b0528a", "#b97f00", "#2f8fc9", "#4d4d4d", "#7a3fb5")
"""The same on pages, where text has these colours too: the light ones are darker. One more at the end."""
ON_BLACK = ("#ff8a3d", "#5aaee8", "#35c79b", "#e39ac6", "#edb83d", "#8fd0f7", "#c4c4c4", "#bd93f0")
ORDER = ("optimistic", "sombrl", "hucrl", "pets", "greedy", "random", "thompson")
"""Methods that come first, and have the same colour everywhere."""


def exploration(method: str) -> str:
    """The exploration in a method's name: greedy in `mbpo/greedy bonus_weight=1`."""
    return method.split(" ")[0].split("/")[-1]


def places(methods: Sequence[str]) -> list[int]:
    """The place of each method in the palette: known explorations have theirs, others take what is free."""
    taken: dict[str, int] = {}
    for method in methods:
        last = exploration(method)
        place = max(ORDER.index(last) - 1, 0) if last in ORDER else None  # sombrl is optimistic
        if place is not None and place not in taken.values():
            taken[method] = place
    free = (place for place in range(len(methods) + len(ORDER)) if place not in taken.values())
    for method in methods:
        if method not in taken:
            taken[method] = next(free)
    return [taken[method] for method in methods]
