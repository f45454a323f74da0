"""What σ of Dreamer is made of while it falls. `python -m benchmarks.dreamer_sigma --out FILE.csv`.

Trains the smallest model and looks, after every report, at the newest windows of the replay: σ, σ of an untrained
ensemble on the same states, σ of random actions in them, how far the targets spread, how much of that is the chance of
sampling latents, and how far the ensemble's mean prediction is from the targets and from their chances. On the way it
measures how σ ranks the errors of one step on held-out episodes.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from sombrl.agent.make import make
from sombrl.dreamer.dreamer import Dreamer, Networks, Sequences, over_all
from sombrl.dreamer.loop import as_sequences
from sombrl.dreamer.rssm import Latent, mixed
from sombrl.dreamer.trainer import DreamerTrainer

WINDOWS = 8
LOGGED = ("explore/mean_std", "explore/bonus_share", "loss/ensemble_new", "loss/ensemble_old")


def look(dreamer: Dreamer, networks: Networks, untrained: Any, batch: Sequences) -> dict[str, Array]:
    """Numbers of one seed on a batch of windows; spreads and errors are root mean squares per coordinate."""
    ensemble, size = networks.ensemble, dreamer.size
    assert ensemble is not None
    start = Latent(batch.deter.astype(jnp.float32), jax.nn.one_hot(batch.stoch, size.classes, dtype=jnp.float32))
    tokens = over_all(networks.encoder)(batch.obs)
    before, actions = batch.action[:, :-1], batch.action[:, 1:-1]
    latents, _, posterior = networks.rssm.observe_sequences(start, before, tokens, batch.first, key=jr.key(5))
    features, targets = latents.features[:, :-1], dreamer.targets(latents, tokens)
    follows = ~batch.first[:, 1:, None]
    mean = jnp.mean(over_all(ensemble.predict)(features, actions), axis=2)

    def rms(errors: Array) -> Array:
        return jnp.sqrt(jnp.sum(follows * errors**2) / jnp.sum(follows) / errors.shape[-1])

    found = {
        "sigma": jnp.mean(over_all(ensemble.sigma)(features, actions)),
        "sigma untrained": jnp.mean(over_all(untrained.sigma)(features, actions)),
        "sigma random action": jnp.mean(
            over_all(ensemble.sigma)(features, jr.uniform(jr.key(9), actions.shape, minval=-1.0, maxval=1.0))
        ),
        "spread of targets": jnp.mean(jnp.std(targets, axis=(0, 1))),
        "error": rms(mean - targets[:, 1:]),
    }
    if dreamer.config.explore.ensemble_target == "stoch":
        chances = jnp.reshape(mixed(posterior), targets.shape)[:, 1:]
        found |= {"chance": rms(jnp.sqrt(chances * (1.0 - chances))), "error of chances": rms(mean - chances)}
    return found


def main() -> None:
    """Train, look, and write a CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="mountain-car")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--decisions", type=int, default=3500)
    parser.add_argument("--calibrate-every", type=int, default=1, help="reports between two looks at held-out episodes")
    parser.add_argument("--ensemble-target", default="stoch")
    parser.add_argument("--ensemble-lr", type=float)
    parser.add_argument("--bootstrap", type=float, default=1.0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    settings: dict[str, Any] = {
        **{"size": "tiny", "ratio": 256.0, "batch_size": 8, "batch_length": 32, "envs": 2, "imagine_last": 8},
        **{"episode_length": 200, "report_every": 500, "decisions": args.decisions, "seeds": args.seeds},
        **{name: getattr(args, name) for name in ("ensemble_target", "ensemble_lr", "bootstrap")},
    }
    agent = make("dreamer", args.env, **settings)
    trainer = agent.trainer
    assert isinstance(trainer, DreamerTrainer)
    untrained = trainer.dreamer.init(key=jr.key(77)).networks.ensemble
    measure = jax.jit(lambda networks, batch: look(trainer.dreamer, networks, untrained, batch))
    rows: list[dict[str, Any]] = []
    updates = 0
    for n, report in enumerate(agent.iterations(agent.planned_iterations)):
        updates += int(report.metrics["time/updates"][0])
        ranks = trainer.calibration(2) if (n + 1) % args.calibrate_every == 0 else {}
        for i, seed in enumerate(trainer.seeds):
            networks = jax.tree.map(lambda leaf: leaf[i], trainer.state.learned.networks)  # noqa: B023
            newest = as_sequences([trainer.loop.replays[i].latest(WINDOWS)])
            found = measure(networks, jax.tree.map(lambda leaf: leaf[0], newest))
            values = {name: float(value) for name, value in found.items()}
            values |= {name: float(report.metrics[name][i]) for name in LOGGED}
            values |= {name: float(np.asarray(value)[0, i]) for name, value in ranks.items()}
            where = {"target": args.ensemble_target, "ensemble_lr": args.ensemble_lr, "bootstrap": args.bootstrap}
            rows += [where | {"seed": seed, "updates": updates, "what": k, "value": v} for k, v in values.items()]
        with args.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
