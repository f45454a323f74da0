"""Begin with what another run has learned: the task comes after the exploring (Plan2Explore's second half).

The world model is taken over, and the ensemble where both runs have one. Policy, value and optimisers begin anew: they
were for another reward. On the same environment the records come along, and so do the heads of rewards and ends.
"""

from typing import TYPE_CHECKING

import equinox as eqx

from sombrl.dreamer.dreamer import Networks
from sombrl.errors import SombrlError
from sombrl.seeds import take

if TYPE_CHECKING:
    from sombrl.dreamer.trainer import DreamerTrainer

WORLD = ("encoder", "rssm", "decoder")
TASK = ("reward", "cont")


def check_source(trainer: "DreamerTrainer", source: "DreamerTrainer", path: str) -> None:
    """Refuse a source that does not fit."""
    ours, theirs = trainer.envs.spec, source.envs.spec
    if (trainer.layout, ours.action_dim, ours.discrete) != (source.layout, theirs.action_dim, theirs.discrete):
        raise SombrlError(f"{path} has other observations or actions than {ours.name}: --start-from needs the same.")
    for name in ("size", "cnn", "envs", "batch_length"):
        wanted = getattr(source.dreamer.config, name)
        if getattr(trainer.dreamer.config, name) != wanted:
            raise SombrlError(f"{path} was trained with --{name.replace('_', '-')} {wanted}: add it.")
    mine, its = trainer.config.explore, source.config.explore
    size = source.dreamer.size
    if mine.curious and its.curious:
        if (mine.members, mine.widths(size)) != (its.members, its.widths(size)):
            hidden = " ".join(map(str, its.widths(size)))
            raise SombrlError(f"{path} was trained with --members {its.members} --hidden {hidden}: add them.")
        if mine.ensemble_target != its.ensemble_target:
            raise SombrlError(f"{path} was trained with --ensemble-target {its.ensemble_target}: add it.")
    if len(trainer.seeds) > len(source.seeds):
        raise SombrlError(f"{path} has {len(source.seeds)} seeds, too few for --seeds {len(trainer.seeds)}.")


def same_world(trainer: "DreamerTrainer", source: "DreamerTrainer") -> bool:
    """Whether the records of the source are like those this trainer would make. Of an object nothing is known."""
    if trainer.maker.is_object:
        return False
    names = ("env", "env_kwargs", "action_cost", "episode_length")
    same = all(getattr(trainer.run, name) == getattr(source.run, name) for name in names)
    return same and trainer.envs.spec.action_repeat == source.envs.spec.action_repeat


def take_networks(ours: Networks, theirs: Networks, seeds: int, task: bool) -> Networks:
    """Those of the first `seeds` of the source; with the heads of the `task` where it is the same."""
    both = ours.ensemble is not None and theirs.ensemble is not None
    names = WORLD + (TASK if task else ()) + (("ensemble",) if both else ())
    theirs = take(theirs, slice(0, seeds))
    parts = [getattr(theirs, name) for name in names]
    taken: Networks = eqx.tree_at(lambda n: [getattr(n, name) for name in names], ours, parts)
    return taken
