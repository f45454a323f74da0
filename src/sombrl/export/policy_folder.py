"""A trained policy as a folder that NumPy alone can load: `sombrl export-policy`.

policy.npz has the arrays, policy.json says what they are and holds a few recorded actions, and policy.py is
`sombrl/export/policy.py`, which needs neither sombrl nor JAX. Before the folder appears its actions are compared with
the recorded ones.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from sombrl.agent.agent import Agent
from sombrl.agent.make import load_with
from sombrl.controllers.sac_losses import gaussian
from sombrl.dreamer.dreamer import Dreamer
from sombrl.dreamer.rssm import zero_latent
from sombrl.dreamer.trainer import DreamerTrainer
from sombrl.envs.base import AbstractEnvs
from sombrl.envs.jax_envs import JaxEnvs
from sombrl.envs.layout import Part
from sombrl.envs.rc_car import RCCar
from sombrl.envs.trust import NO_WORD, Word
from sombrl.export import policy as deployed
from sombrl.networks.as_steps import steps_of
from sombrl.networks.normaliser import Normalised
from sombrl.networks.steps import LAYER_NORM_EPS
from sombrl.records import RunFault, SombrlError
from sombrl.storage.files import check_new, new_folder, write_synced
from sombrl.storage.provenance import versions
from sombrl.training.parts import PartsTrainer

FORMAT = 3
EXAMPLES = 8
TOLERANCE = 1e-5
"""Of a recorded action, in half ranges: float32 sums in another order differ by about 1e-6."""


@dataclasses.dataclass(frozen=True)
class Exported:
    """What goes into policy.json and policy.npz."""

    info: dict[str, Any]
    arrays: dict[str, np.ndarray]


def export_policy(
    run: Agent | str | Path,
    out: str | Path,
    *,
    seed: int | None = None,
    onnx: bool = False,
    word: Word = NO_WORD,
) -> Path:
    """Write the policy of one seed, by default the first, of a run or an agent to the new folder `out`.

    `onnx` adds policy.onnx (onnx_graph.py). `word` is what the user has said about code that the run names.
    """
    out = Path(out)
    check_new(out, "--out")
    agent = run if isinstance(run, Agent) else load_with(word, run)
    for note in [] if agent is run else agent.notes:  # of a damaged checkpoint: the policy is then an older one
        print(note, file=sys.stderr)
    if agent.trainer.plan not in (None, "none"):
        print(
            "the policy alone is exported: its plans need the model, so use load and predict where it is to plan",
            file=sys.stderr,
        )
    with jax.default_matmul_precision("highest"):  # a GPU would round the recorded actions to TF32
        exported = describe(agent, agent.seeds[0] if seed is None else seed)
    files: dict[str, bytes | Any] = {
        "policy.npz": lambda file: np.savez(file, allow_pickle=False, **exported.arrays),
        "policy.json": json.dumps(exported.info, indent=1).encode(),
        "policy.py": Path(deployed.__file__).read_bytes(),
    }
    if onnx:
        from sombrl.export.onnx_graph import onnx_bytes

        files["policy.onnx"] = onnx_bytes(exported.info, exported.arrays)
    with new_folder(out, "write") as aside:
        for name, content in files.items():
            write_synced(aside / name, content)
        _require_same(aside, out)
    return out


def describe(agent: Agent, seed: int) -> Exported:
    """The policy of one seed of an agent."""
    row = agent.row_of(seed)
    own = _dreamer(agent.trainer, row) if isinstance(agent.trainer, DreamerTrainer) else _mlp(agent, row)
    spec, run_config = agent.envs.spec, agent.run_config
    info = {
        "format": FORMAT,
        "kind": own.info.pop("kind"),
        "algorithm": agent.algorithm,
        "explored": agent.config.explore.explore,
        "seed": seed,
        "decisions": own.info.pop("decisions"),
        "environment": {
            "name": spec.name,
            "options": run_config.env_options,
            "action_repeat": spec.action_repeat,
            "episode_length": spec.episode_length,
        },
        "observation": own.info.pop("observation"),
        "action": _action(agent.envs),
        **own.info,
        "versions": versions("sombrl", "jax", "numpy"),
    }
    return Exported(info, own.arrays)


def _require_same(folder: Path, out: Path) -> None:
    """Refuse to publish a policy that acts otherwise than the agent."""
    found = deployed.load(folder).check()
    if not found <= TOLERANCE:  # NaN as well
        raise RunFault(
            f"{out} is not written: its actions differ from the agent's by {found:.1e} of half their range (allowed "
            f"{TOLERANCE:.0e}); please report it."
        )


def _mlp(agent: Agent, row: int) -> Exported:
    """The tanh-Gaussian actor of SAC, MaxInfoSAC, MBPO and SimFSVGD."""
    if not agent.trainer.learns_policy:
        raise SombrlError(
            f"{agent.algorithm} plans every decision with its model and has no policy to export: use sombrl.load and "
            "predict where it is to act, or train an algorithm that learns a policy (sac, mbpo, sim-fsvgd, dreamer)."
        )
    trainer = agent.trainer
    assert isinstance(trainer, PartsTrainer)
    network = trainer.parts.controller.actor(trainer.state.controller)
    network, replay = jax.tree.map(lambda leaf: leaf[row], (network, trainer.state.replay))
    if int(replay.count) == 0:
        raise _untrained()
    chosen = np.linspace(0, int(replay.count) - 1, EXAMPLES).round().astype(int)
    obs = np.asarray(replay.data.obs)[chosen]
    unit = np.asarray(jnp.tanh(jax.vmap(lambda x: gaussian(network, x)[0])(jnp.asarray(obs))))
    layers: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    steps = steps_of(network)
    for i, step in enumerate(steps):
        names = {name: f"layer_{i}/{name}" for name in step.arrays}
        arrays |= {names[name]: array for name, array in step.arrays.items()}
        layer: dict[str, Any] = {"name": f"layer_{i}", "kind": step.kind, **names}
        if step.kind == "linear":
            layer["shape"] = list(step.arrays["weight"].shape)
        # The last layer has two heads, the mean and the log-std: "tanh-mean" is tanh of the first half.
        layers.append(layer | {"activation": "tanh-mean" if i == len(steps) - 1 else step.activation})
    stack = _stack(agent.envs)
    info = {
        "kind": "mlp",
        "decisions": int(replay.added),
        "observation": {"parts": _parts(agent.envs.spec.obs_layout.parts, {"vector": "none"}), "stack": stack},
        "network": {"layers": layers, "limit": Normalised.LIMIT, "norm_eps": LAYER_NORM_EPS},
        "examples": {
            "tolerance": TOLERANCE,
            "observations": obs.tolist(),
            "actions": agent.envs.physical(unit).tolist(),
        },
    }
    return Exported(info, arrays)


def _dreamer(trainer: DreamerTrainer, row: int) -> Exported:
    """Encoder, sequence model and actor; the recorded actions are those of one sequence from the replay."""
    replay, size, spec = trainer.loop.replays[row], trainer.dreamer.size, trainer.envs.spec
    if replay.added <= replay.length:
        raise _untrained()
    networks = jax.tree.map(lambda leaf: leaf[row], trainer.state.learned.networks)
    encoder, rssm, actor = networks.encoder, networks.rssm, networks.policy
    leaves = jax.tree_util.tree_flatten_with_path({"encoder": encoder, "rssm": rssm, "policy": actor})[0]
    arrays = {_name(path): np.asarray(leaf, np.float32) for path, leaf in leaves}
    unused = ("rssm/prior_", "policy/std_output")
    arrays = {name: array for name, array in arrays.items() if not name.startswith(unused)}

    window = replay.latest(1)
    obs = {name: values[0, :EXAMPLES] for name, values in window.obs.items()}
    actions, noise = _sequence(trainer, networks, obs)
    arrays |= {f"examples/{part.name}": part.counted(obs[part.name]) for part in trainer.layout.parts}
    arrays |= {"examples/noise": noise}
    normalisation = {"vector": "sign(x) log(1 + |x|)", "discrete": "one-hot", "image": "x/255 - 0.5"}
    info = {
        "kind": "dreamer",
        "decisions": int(trainer.state.streams.decisions.reshape(len(trainer.seeds), -1)[row].sum()),
        "observation": {"parts": _parts(trainer.layout.parts, normalisation), "stack": None},
        "network": {
            "deter": size.deter,
            "latents": size.latents,
            "classes": size.classes,
            "blocks": size.blocks,
            "action_dim": spec.action_dim,
            "discrete": spec.discrete,
            "encoder_layers": 0 if encoder.mlp is None else len(encoder.mlp.layers),
            "halvings": [stage.halving for stage in encoder.stages],
            "actor_layers": len(actor.body.layers),
            "activation": "silu",
        },
        "examples": {"tolerance": TOLERANCE, "actions": trainer.envs.physical(actions).tolist()},
    }
    return Exported(info, arrays)


def _sequence(trainer: DreamerTrainer, networks: Any, obs: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest actions along a sequence of observations, and the Gumbel noise of the latents that were drawn.

    In float32 whatever the agent computes in, as the exported policy does.
    """
    config = dataclasses.replace(trainer.dreamer.config, precision="float32")
    dreamer = Dreamer(config, trainer.dreamer.parts, trainer.dreamer.action_dim, trainer.dreamer.discrete)
    act = jax.jit(lambda *now, key: dreamer.act(networks, *now, sample=False, key=key))
    latent = zero_latent(dreamer.size, jnp.dtype(jnp.float32))
    action, actions, noise = jnp.zeros(trainer.envs.spec.action_dim, jnp.float32), [], []
    for t in range(len(next(iter(obs.values())))):
        key = jr.fold_in(jr.key(0), t)
        # As `Dreamer.act` splits its key, and `RSSM.observe` draws with the first half.
        noise.append(np.asarray(jr.gumbel(jr.split(jr.clone(key))[0], latent.stoch.shape, jnp.float32)))
        seen = {name: jnp.asarray(values[t]) for name, values in obs.items()}
        action, latent = act(latent, action, seen, jnp.asarray(t == 0), key=key)
        actions.append(np.asarray(action))
    return np.stack(actions), np.stack(noise)


def _name(path: tuple[Any, ...]) -> str:
    """Where a leaf is, with slashes."""
    return "/".join(str(getattr(step, "name", getattr(step, "key", getattr(step, "idx", "")))) for step in path)


def _parts(parts: tuple[Part, ...], normalisation: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "name": part.name,
            "kind": part.kind,
            "shape": list(part.shape),
            "dtype": part.dtype.name,
            "size": part.size,
            "start": part.start,
            "normalisation": normalisation[part.kind],
        }
        for part in parts
    ]


def _action(envs: AbstractEnvs) -> dict[str, Any]:
    """How an action of the policy becomes one of the environment: bounds, or the choices in order."""
    size = envs.spec.action_dim
    if envs.spec.discrete:
        return {"kind": "discrete", "choices": envs.physical(np.eye(size, dtype=np.float32)).tolist()}
    low, high = envs.physical(np.stack([-np.ones(size, np.float32), np.ones(size, np.float32)]))
    return {"kind": "continuous", "low": low.tolist(), "high": high.tolist(), "dtype": low.dtype.name}


def _stack(envs: AbstractEnvs) -> dict[str, int] | None:
    """The pending actions in the observations of an RC car; None elsewhere."""
    world = envs.world if isinstance(envs, JaxEnvs) else None
    if not isinstance(world, RCCar) or world.delay == 0:
        return None
    return {
        "measured": world.obs_dim - world.action_dim * world.delay,
        "delay": world.delay,
        "action_dim": world.action_dim,
        "remembered": world.delay + (world.stack == "legacy"),  # "legacy" shows them a frame late
    }


def _untrained() -> SombrlError:
    return SombrlError("this agent has learned nothing yet: train it before its policy is exported.")
