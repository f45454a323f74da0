"""A policy that sombrl has trained, for use without sombrl: this file, policy.json and policy.npz, and NumPy.

    import policy                                      # from the folder that this file lies in

    pilot = policy.load()                              # or load("another/folder")
    state = None                                       # at the start of every episode
    action, state = pilot.act(observation, state)      # both as the environment has them

`python policy.py` says what the policy is and repeats the examples that were recorded when it was exported.

An observation is an array, or a dict of arrays where the environment has several parts; policy.json lists them. The
action is in the environment's own units, and stands for `action_repeat` frames. It is the most likely action, without
exploration noise. Everything is computed in float32, for one observation at a time.
"""

import abc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NORM_EPS = 1e-4  # under the root of a mean square
UNIFORM = 0.01  # share of the uniform distribution in the chances of a latent

Action = np.ndarray | np.generic
"""An array, or of discrete actions an integer."""


def load(folder: str | Path | None = None, seed: int = 0) -> "MLPPolicy | DreamerPolicy":
    """The policy of an exported folder, by default this file's own.

    `seed` is for Dreamer alone, which samples its latent state; other policies are deterministic.
    """
    folder = Path(__file__).parent if folder is None else Path(folder)
    info = json.loads((folder / "policy.json").read_text())
    with np.load(folder / "policy.npz", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return DreamerPolicy(info, arrays, seed) if info["kind"] == "dreamer" else MLPPolicy(info, arrays)


class Policy(abc.ABC):
    """What policy.json says (`info`), the arrays of policy.npz, and how to act."""

    def __init__(self, info: dict[str, Any], arrays: dict[str, np.ndarray]):
        self.info, self.arrays = info, arrays

    @abc.abstractmethod
    def act(self, observation: Any, state: Any = None, noise: np.ndarray | None = None) -> tuple[Action, Any]:
        """The action after an observation, and the state to hand back with the next one; None starts an episode."""

    def check(self) -> float:
        """The largest difference from the recorded examples, in half ranges of the action; should be tiny."""
        examples, state, worst = self.info["examples"], None, 0.0
        for i, expected in enumerate(examples["actions"]):
            noise = self.arrays["examples/noise"][i] if "examples/noise" in self.arrays else None
            action, state = self.act(self._example(i), state, noise)
            worst = max(worst, self._difference(action, np.asarray(expected)))
        return worst

    def _example(self, i: int) -> Any:
        """Observation i: in policy.json where it is one vector, otherwise in policy.npz."""
        if "observations" in self.info["examples"]:
            return np.array(self.info["examples"]["observations"][i], np.float32)
        return {part["name"]: self.arrays[f"examples/{part['name']}"][i] for part in self.info["observation"]["parts"]}

    def _difference(self, action: Action, expected: np.ndarray) -> float:
        about = self.info["action"]
        if about["kind"] == "discrete":
            return 0.0 if np.array_equal(action, expected) else 1.0
        half = 0.5 * (np.array(about["high"], np.float64) - np.array(about["low"], np.float64))
        return float(np.max(np.abs(np.asarray(action, np.float64) - expected) / half))

    def _parts(self, observation: Any) -> dict[str, np.ndarray]:
        """The observation by parts, each in the shape and type that policy.json says."""
        parts = self.info["observation"]["parts"]
        given = observation if isinstance(observation, dict) else {parts[0]["name"]: observation}
        names = [part["name"] for part in parts]
        if set(names) != set(given):
            raise ValueError(f"an observation has the parts {names}, not {list(given)}.")
        found = {}
        for part in parts:
            array = np.asarray(given[part["name"]]).astype(part["dtype"], copy=False)
            if array.size != int(np.prod(part["shape"])):
                raise ValueError(f"{part['name']} of an observation is {part['shape']}, not {list(array.shape)}.")
            found[part["name"]] = array.reshape(part["shape"]) - array.dtype.type(part["start"])
        return found

    def _physical(self, unit: np.ndarray) -> Action:
        """An action in [-1, 1] in the environment's units; of a discrete one, which it is."""
        about = self.info["action"]
        if about["kind"] == "discrete":
            choice: np.generic = np.asarray(about["choices"])[int(np.argmax(unit))]
            return choice
        low, high = np.array(about["low"], np.float64), np.array(about["high"], np.float64)
        share = 0.5 * (np.clip(unit.astype(np.float64), -1.0, 1.0) + 1.0).reshape(low.shape)
        # Clipped again because the cast to float32 may round just past a bound.
        action: np.ndarray = np.clip((low + share * (high - low)).astype(about["dtype"]), low, high)
        return action.astype(about["dtype"])


class MLPPolicy(Policy):
    """The actor of SAC, MaxInfoSAC, MBPO and SimFSVGD: u = tanh(first half of the last layer).

    policy.json lists the layers, in whose order x, at first the observation, changes; `activation` comes after each.

    - linear: x W + b;
    - normalise: clip((x - mean)/std, ± limit), of observations;
    - layer-norm: (x - mean(x))/sqrt(var(x) + norm_eps) · scale + shift;
    - remember, add: a residual block begins, and ends by adding what x was then.

    The second half of the last layer, the policy's log-std, was for exploring and is not used.

    A car with delayed actions observes its pending ones too. Give either the whole observation, or the measured numbers
    alone: then `state` keeps the actions, from zeros at the start of an episode.
    """

    def act(self, observation: Any, state: Any = None, noise: np.ndarray | None = None) -> tuple[Action, Any]:
        """See `Policy`; there is no noise."""
        stack = self.info["observation"]["stack"]
        if stack is None:
            return self._physical(self._unit(self._vector(observation))), None
        past = np.zeros((stack["remembered"], stack["action_dim"]), np.float32) if state is None else state
        if np.size(observation) == stack["measured"]:
            measured = np.asarray(observation, np.float32).reshape(-1)
            observation = np.concatenate([measured, past[: stack["delay"]].reshape(-1)])
        unit = self._unit(self._vector(observation))
        sent = np.repeat(unit[None], self.info["environment"]["action_repeat"], axis=0)
        return self._physical(unit), np.concatenate([past, sent])[-stack["remembered"] :]

    def _vector(self, observation: Any) -> np.ndarray:
        return np.concatenate([part.reshape(-1) for part in self._parts(observation).values()])

    def _unit(self, x: np.ndarray) -> np.ndarray:
        network, before = self.info["network"], []
        for layer in network["layers"]:
            kind = layer["kind"]
            if kind == "linear":
                x = x @ self.arrays[layer["weight"]] + self.arrays[layer["bias"]]
            elif kind == "normalise":
                limit = np.float32(network["limit"])
                x = np.clip((x - self.arrays[layer["mean"]]) / self.arrays[layer["std"]], -limit, limit)
            elif kind == "layer-norm":
                centred = x - np.mean(x)
                size = np.sqrt(np.mean(centred**2) + np.float32(network["norm_eps"]))
                x = centred / size * self.arrays[layer["scale"]] + self.arrays[layer["shift"]]
            elif kind == "remember":
                before.append(x)
            elif kind == "add":
                x = x + before.pop()
            else:
                raise ValueError(f"a layer of kind {kind!r} is not known to this policy.py.")
            if layer["activation"] in ACTIVATIONS:
                x = ACTIVATIONS[layer["activation"]](x)
        mean: np.ndarray = np.tanh(x[: len(x) // 2])
        return mean


class DreamerPolicy(Policy):
    """Encoder, recurrent state-space model and actor of DreamerV3; `state` is (memory h, latents z, last action).

    - dense(x) = silu(rms_norm(x W + b)).
    - Tokens: vectors, as sign(x) log(1 + |x|), and one-hot discrete values through dense layers; images, as
      byte/255 - 0.5, through 5 x 5 convolutions, each with a stride of 2, 2 x 2 max-pooling or neither, rms_norm, silu.
    - Memory: h' = GRU(h, [h, dense(h), dense(z), dense(action)]), whose matrices are block-diagonal.
    - Latents: z' ~ 0.99 softmax(posterior(h', tokens)) + 0.01 uniform, drawn by the largest of log-chance + Gumbel
      noise, as in training. `noise` replaces the drawn one; zeros take the likeliest latents.
    - Action: tanh(mean(dense layers of [h', z'])), or the largest logit.
    """

    def __init__(self, info: dict[str, Any], arrays: dict[str, np.ndarray], seed: int = 0):
        super().__init__(info, arrays)
        self._generator = np.random.default_rng(seed)
        self._network = info["network"]

    def act(self, observation: Any, state: Any = None, noise: np.ndarray | None = None) -> tuple[Action, Any]:
        """See `Policy`; `noise` is Gumbel's, [latents, classes]."""
        shape = self._network["latents"], self._network["classes"]
        tokens = self._encode(self._parts(observation))
        if state is None:
            zeros = (self._network["deter"],), shape, (self._network["action_dim"],)
            state = tuple(np.zeros(size, np.float32) for size in zeros)
        if noise is None:
            noise = self._generator.gumbel(size=shape).astype(np.float32)
        deter = self._advance(*state)
        logits = self._linear("rssm/posterior_head", self._dense("rssm/posterior_body", _join(deter, tokens)))
        chances = (1.0 - UNIFORM) * _softmax(logits.reshape(shape)) + np.float32(UNIFORM / shape[1])
        stoch = np.eye(shape[1], dtype=np.float32)[np.argmax(np.log(chances) + noise, axis=-1)]
        x = _join(deter, stoch)
        for i in range(self._network["actor_layers"]):
            x = self._dense(f"policy/body/layers/{i}", x)
        if self._network["discrete"]:
            choice = int(np.argmax(self._linear("policy/output", x)))
            action = np.eye(self._network["action_dim"], dtype=np.float32)[choice]
        else:
            action = np.tanh(self._linear("policy/mean_output", x))
        return self._physical(action), (deter, stoch, action)

    def _encode(self, parts: dict[str, np.ndarray]) -> np.ndarray:
        images, numbers, tokens = [], [], []
        for about in self.info["observation"]["parts"]:
            value = parts[about["name"]]
            if about["kind"] == "image":
                images.append(value)
            elif about["kind"] == "discrete":
                numbers.append(np.eye(about["size"], dtype=np.float32)[value].reshape(-1))
            else:
                numbers.append((np.sign(value) * np.log1p(np.abs(value))).reshape(-1))
        if numbers:
            x = np.concatenate(numbers)
            for i in range(self._network["encoder_layers"]):
                x = self._dense(f"encoder/mlp/layers/{i}", x)
            tokens.append(x)
        if images:
            image = np.concatenate(images, axis=-1).astype(np.float32) / np.float32(255.0) - np.float32(0.5)
            for i, halving in enumerate(self._network["halvings"]):
                stage = f"encoder/stages/{i}"
                kernel, bias = (self.arrays[f"{stage}/convolution/{name}"] for name in ("weight", "bias"))
                image = _convolve(image, kernel, 2 if halving == "stride" else 1) + bias
                if halving == "pool":
                    image = np.maximum(image[0::2], image[1::2])
                    image = np.maximum(image[:, 0::2], image[:, 1::2])
                image = _silu(self._rms_norm(f"{stage}/norm", image))
            tokens.append(image.reshape(-1))
        return np.concatenate(tokens)

    def _advance(self, deter: np.ndarray, stoch: np.ndarray, action: np.ndarray) -> np.ndarray:
        """The memory one action later. A block of it reads all inputs, and its own part of the memory."""
        if not self._network["discrete"]:
            action = action / np.maximum(np.float32(1.0), np.abs(action))
        read = {"deter_in": deter, "stoch_in": stoch.reshape(-1), "action_in": action}
        shared = np.concatenate([self._dense(f"rssm/{name}", value) for name, value in read.items()])
        blocks = self._network["blocks"]
        inputs = np.concatenate([deter.reshape(blocks, -1), np.tile(shared, (blocks, 1))], axis=1)
        x = _silu(self._rms_norm("rssm/mix_norm", self._block_linear("rssm/mix", inputs)))
        gates = self._block_linear("rssm/gates", x.reshape(blocks, -1)).reshape(blocks, 3, -1)
        reset, candidate, update = (gates[:, i].reshape(-1) for i in range(3))
        candidate = np.tanh(_sigmoid(reset) * candidate)
        update = _sigmoid(update - np.float32(1.0))
        memory: np.ndarray = update * candidate + (np.float32(1.0) - update) * deter
        return memory

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        y: np.ndarray = x @ self.arrays[f"{name}/weight"] + self.arrays[f"{name}/bias"]
        return y

    def _block_linear(self, name: str, x: np.ndarray) -> np.ndarray:
        rows = x[:, None] @ self.arrays[f"{name}/weight"]
        y: np.ndarray = rows.reshape(-1) + self.arrays[f"{name}/bias"]
        return y

    def _rms_norm(self, name: str, x: np.ndarray) -> np.ndarray:
        size = np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + np.float32(NORM_EPS))
        y: np.ndarray = x / size * self.arrays[f"{name}/scale"]
        return y

    def _dense(self, name: str, x: np.ndarray) -> np.ndarray:
        return _silu(self._rms_norm(f"{name}/norm", self._linear(f"{name}/linear", x)))


def _join(deter: np.ndarray, rest: np.ndarray) -> np.ndarray:
    return np.concatenate([deter, rest.reshape(-1)])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    y: np.ndarray = np.float32(1.0) / (np.float32(1.0) + np.exp(-np.maximum(x, np.float32(-80.0))))  # e^80 is finite
    return y


def _silu(x: np.ndarray) -> np.ndarray:
    y: np.ndarray = x * _sigmoid(x)
    return y


def _softmax(x: np.ndarray) -> np.ndarray:
    powers: np.ndarray = np.exp(x - np.max(x, axis=-1, keepdims=True))
    shares: np.ndarray = powers / np.sum(powers, axis=-1, keepdims=True)
    return shares


def _convolve(image: np.ndarray, kernel: np.ndarray, stride: int) -> np.ndarray:
    """[height, width, input] with [k, k, input, output] at every `stride`-th pixel, zeros beyond the border.

    The sides are multiples of the stride; what the border lacks for them is shared out, the odd one to the end.
    """
    k = kernel.shape[0]
    missing = k - stride
    border = (missing // 2, missing - missing // 2)
    padded = np.pad(image, (border, border, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(0, 1))  # [height, width, input, k, k]
    return np.tensordot(windows[::stride, ::stride], kernel, axes=([3, 4, 2], [0, 1, 2]))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, np.float32(0.0)),
    "silu": _silu,
    "tanh": np.tanh,
}


def main() -> None:
    """Print what the policy is, and check that it repeats the actions recorded at its export."""
    pilot = load()
    info, found, allowed = pilot.info, pilot.check(), pilot.info["examples"]["tolerance"]
    print(f"{info['algorithm']} on {info['environment']['name']}, seed {info['seed']}, {info['decisions']} decisions")
    print(f"{len(info['examples']['actions'])} recorded actions repeated within {found:.1e} (allowed {allowed:.0e})")
    if not found <= allowed:
        sys.exit("these are not the actions that were recorded: is the folder damaged?")


if __name__ == "__main__":
    main()
