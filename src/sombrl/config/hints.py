"""What people type who come from elsewhere: other libraries' names of settings, and settings that are not ours."""

import difflib
from collections.abc import Callable, Iterable

from sombrl.errors import SombrlError

LENGTH = ("decisions", "episodes")
RATES = ("sac.actor_lr", "sac.critic_lr", "sac.temperature_lr", "ensemble.learning_rate", "gp.fit_learning_rate")
MEANT: dict[str, tuple[str, ...]] = {
    "lambda": ("bonus_weight",),
    "lam": ("bonus_weight",),
    "intrinsic_weight": ("bonus_weight",),
    "total_timesteps": LENGTH,
    "timesteps": LENGTH,
    "total_steps": LENGTH,
    "num_steps": LENGTH,
    "max_steps": LENGTH,
    "steps": LENGTH,
    "num_episodes": ("episodes",),
    "horizon": ("episode_length", "icem.horizon", "search.horizon"),
    "max_episode_steps": ("episode_length",),
    "learning_rate": RATES,
    "lr": RATES,
    "gamma": ("discount", "sac.discount"),
    "buffer_size": ("capacity", "gp.capacity"),
    "utd": ("sac.updates_per_call",),
    "n_envs": ("envs", "seeds"),
    "num_envs": ("envs", "seeds"),
    "num_seeds": ("seeds",),
    "environment": ("env",),
    "env_id": ("env",),
    "task": ("env",),
    "strategy": ("explore",),
    "planner": ("controller",),
    "logdir": ("out",),
    "output": ("out",),
}
"""A foreign name, and what it is called here; the first of these that there are."""

ELSEWHERE = dict.fromkeys(
    ("device", "gpu", "cuda", "cpu", "platform"),
    "JAX chooses the device: set JAX_PLATFORMS, as in JAX_PLATFORMS=cpu sombrl train ...",
)
"""Settings that sombrl does not have, and what decides instead."""


def unknown(
    word: str, known: Iterable[str], what: str, show: Callable[[str], str] = lambda name: name, see: str = ""
) -> SombrlError:
    """The error for an unknown setting `word`, a `what`; `show` writes a known name as the reader would."""
    where = f" (see: {see})" if see else ""
    plain = word.lstrip("-").replace("-", "_").lower()
    if plain in ELSEWHERE:
        return SombrlError(f"unknown {what} {word}: {ELSEWHERE[plain]}")
    if close := meant(plain, list(known)):
        return SombrlError(f"unknown {what} {word}: did you mean {' or '.join(map(show, close))}?{where}")
    return SombrlError(f"unknown {what} {word}{where}")


def meant(plain: str, known: list[str]) -> list[str]:
    """The settings that a name may stand for, by what it means elsewhere, by its last part, or by its spelling."""
    last = plain.rpartition(".")[2]
    named = [one for one in MEANT.get(plain, ()) if one in known]
    if MEANT.get(plain) == LENGTH:
        named = named[:1]  # whichever the algorithm counts
    same = [one for one in known if one.rpartition(".")[2] == last and one not in named]
    spelt = difflib.get_close_matches(plain, known, n=3, cutoff=0.6)
    if named or (same and plain not in spelt):
        near = [one for one in spelt[:1] if "." in plain and one not in named + same]
        return (named + near + same)[:4]
    return spelt[:1] or difflib.get_close_matches(plain, known, n=1, cutoff=0.5)
