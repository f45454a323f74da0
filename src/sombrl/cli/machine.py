"""`sombrl list`, `check-env`, `doctor` and `demo`: what there is, and whether it works here."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tyro

from sombrl.config.suggestions import nearest
from sombrl.errors import SombrlError

INSTALLED = "--installed"


def list_names(argv: list[str]) -> None:
    """Print the names of one kind, with a line about each."""
    what = argv[0] if argv else ""
    if what in ("", "-h", "--help"):
        print(f"usage: sombrl list {'|'.join(LISTS)}")
        print("       sombrl list envs --installed   every name that can be made here, and its suite")
        return
    if what not in LISTS:
        raise nearest(what, LISTS, "list", see="sombrl list")
    installed = what == "envs" and argv[1:] == [INSTALLED]
    if len(argv) > 1 and not installed:
        more = f"{INSTALLED} or nothing more" if what == "envs" else "nothing more"
        raise SombrlError(f"sombrl list {what} takes {more}, not {argv[1]!r}.")
    rows = _installed_envs() if installed else LISTS[what]()
    width = max(len(name) for name, _ in rows)
    for name, summary in rows:
        print(f"{name:<{width}}  {summary}")


def check_env(
    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")],
    env_kwargs: tuple[str, ...] = (),
    episode_length: int | None = None,
) -> None:
    """Whether an environment will work with sombrl and with which algorithms, and what to fix.

    Args:
        env: A name as in `sombrl train --env`.
        env_kwargs: Options of the environment as name=value.
        episode_length: Decisions per episode, for environments without a time limit.
    """
    from sombrl.algorithms.check import check_env as check
    from sombrl.config.run import RunConfig
    from sombrl.envs.trust import import_from_here, module_of

    if module_of(env):
        import_from_here()
    kwargs = RunConfig(env_kwargs=env_kwargs).env_options
    findings = check(env, env_kwargs=kwargs, episode_length=episode_length)
    if len(findings) == 1 and findings[0].level == "error":  # it could not even be made
        raise SombrlError(findings[0].sentence)
    for finding in findings:
        print(f"{finding.level:<8} {finding.sentence}")
    if any(finding.level == "error" for finding in findings):
        raise SombrlError(f"{env} will not work as it is: see the errors above.")


def doctor() -> None:
    """Whether this machine is set up well, and what to do where it is not."""
    from sombrl.cli.doctor import examine

    for level, sentence in examine():
        print(f"{level:<8} {sentence}")


def demo(out: Path = Path("runs/demo"), seeds: int = 5, episodes: int = 8, jobs: int | None = None) -> None:
    """Optimistic against greedy on sparse MountainCar; ends with a table, a film and a page.

    Args:
        out: The folder of the demo; an old demo in it is replaced.
        seeds: Seeds per strategy.
        episodes: Episodes per seed.
        jobs: Processes that train the strategies side by side; default: two where there are cores for them.
    """
    from sombrl.demo.run import demo as run_demo

    run_demo(out, seeds=seeds, episodes=episodes, jobs=jobs)


def _algorithms() -> list[tuple[str, str]]:
    from sombrl.algorithms import ALGORITHMS

    return [(name, algorithm.summary) for name, algorithm in ALGORITHMS.items()]


def _explorations() -> list[tuple[str, str]]:
    from sombrl.exploration.strategies import STRATEGIES

    return [(name, (make.__doc__ or "").strip()) for name, make in STRATEGIES.items()]


def _envs() -> list[tuple[str, str]]:
    from sombrl.envs.registry import list_envs

    return list_envs()


def _installed_envs() -> list[tuple[str, str]]:
    from sombrl.envs.installed import installed

    return installed()


def _presets() -> list[tuple[str, str]]:
    from sombrl.algorithms import ALGORITHMS

    owners: dict[tuple[str, str], list[str]] = {}
    for algorithm in ALGORITHMS.values():
        for name, preset in algorithm.presets.items():
            shown = " ".join(f"--{field.replace('_', '-')} {value}" for field, value in preset.items())
            owners.setdefault((name, shown), []).append(algorithm.name)
    return [(name, f"{', '.join(algorithms)}: {shown}") for (name, shown), algorithms in owners.items()]


def _experiments() -> list[tuple[str, str]]:
    from sombrl.paper.experiments import EXPERIMENTS

    return [(name, f"{one.summary} ({one.figure})") for name, one in EXPERIMENTS.items()]


LISTS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "algorithms": _algorithms,
    "explorations": _explorations,
    "envs": _envs,
    "presets": _presets,
    "experiments": _experiments,
}
"""What `sombrl list` can list."""
