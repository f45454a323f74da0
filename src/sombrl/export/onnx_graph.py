"""An exported policy as an ONNX graph: the forward pass of `policy.py`, node by node.

Written with onnx.helper rather than by a converter. jax2onnx is maintained and would do, but it brings Flax, Orbax and
more, and must follow JAX's primitives from version to version; a policy is a few kinds of layers, and policy.json names
them all already. The graph uses opset 17, which runtimes have read since 2022.

An MLP maps `observation` [batch, n] to `action` [batch, ...], in the environment's units. Dreamer takes one
observation, an input per part, with `deter`, `stoch` and `last_action` (zeros at the start of an episode, then the
outputs `next_deter`, `next_stoch` and `next_action`) and the Gumbel `noise` that its latents are drawn with (zeros: the
likeliest ones). Discrete actions come out as their place in `choices` of policy.json.
"""

import json
from typing import Any

import numpy as np

from sombrl.export.policy import NORM_EPS, UNIFORM
from sombrl.optional import require

OPSET, IR_VERSION = 17, 8
FLOAT, INT64 = 1, 7  # onnx.TensorProto's


def onnx_bytes(info: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """policy.onnx, from what policy.json and policy.npz hold; checked by onnx itself."""
    onnx = require("onnx", "onnx", "policy.onnx needs the package onnx: pip install 'sombrl[onnx]'.")
    graph = _Graph(onnx, arrays)
    (_dreamer if info["kind"] == "dreamer" else _mlp)(graph, info)
    model = onnx.helper.make_model(
        graph.build(),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="sombrl",
    )
    about = {name: value for name, value in info.items() if name != "examples"}
    onnx.helper.set_model_props(model, {"policy.json": json.dumps(about)})
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


class _Graph:
    """Nodes as they are added; a value is known by its name."""

    def __init__(self, onnx: Any, arrays: dict[str, np.ndarray]):
        self._onnx, self._arrays = onnx, arrays
        self._nodes: list[Any] = []
        self._constants: dict[str, np.ndarray] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def build(self) -> Any:
        """The graph."""
        constants = [self._onnx.numpy_helper.from_array(array, name) for name, array in self._constants.items()]
        return self._onnx.helper.make_graph(self._nodes, "policy", self._inputs, self._outputs, constants)

    def input(self, name: str, dtype: Any, shape: tuple[int | str, ...]) -> str:
        """What the caller gives."""
        self._inputs.append(self._about(name, dtype, shape))
        return name

    def output(self, name: str, value: str, dtype: Any, shape: tuple[int | str, ...]) -> None:
        """What the caller gets."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._about(name, dtype, shape))

    def array(self, name: str) -> str:
        """A parameter by its name in policy.npz."""
        return self.constant(self._arrays[name], name)

    def transposed(self, name: str, axes: tuple[int, ...]) -> str:
        """A parameter with its axes in another order."""
        return self.constant(np.transpose(self._arrays[name], axes), name)

    def constant(self, value: Any, name: str | None = None) -> str:
        """A number or an array; floats are float32, integers int64."""
        array = np.asarray(value)
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        name = f"constant_{len(self._constants)}" if name is None else name
        self._constants[name] = array
        return name

    def __call__(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; its result."""
        result = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [result], **attributes))
        return result

    def reshape(self, x: str, *shape: int) -> str:
        """`x` in another shape."""
        return self("Reshape", x, self.constant(np.array(shape)))

    def linear(self, name: str, x: str) -> str:
        """x W + b."""
        return self("Add", self("MatMul", x, self.array(f"{name}/weight")), self.array(f"{name}/bias"))

    def silu(self, x: str) -> str:
        """x sigmoid(x)."""
        return self("Mul", x, self("Sigmoid", x))

    def norm(self, name: str, x: str) -> str:
        """x / rms(x) · scale, over the last axis."""
        mean = self("ReduceMean", self("Mul", x, x), axes=[-1], keepdims=1)
        size = self("Sqrt", self("Add", mean, self.constant(NORM_EPS)))
        return self("Mul", self("Div", x, size), self.array(f"{name}/scale"))

    def layer_norm(self, name: str, x: str, eps: float) -> str:
        """(x - mean(x))/std(x) · scale + shift, over the last axis."""
        scale, shift = self.array(f"{name}/scale"), self.array(f"{name}/shift")
        return self("LayerNormalization", x, scale, shift, axis=-1, epsilon=eps)

    def dense(self, name: str, x: str) -> str:
        """silu(rms_norm(x W + b))."""
        return self.silu(self.norm(f"{name}/norm", self.linear(f"{name}/linear", x)))

    def physical(self, unit: str, about: dict[str, Any]) -> str:
        """Actions in [-1, 1], [..., action], scaled to the bounds; flat."""
        low, high = (np.array(about[side], np.float64).reshape(-1) for side in ("low", "high"))
        scaled = self("Mul", unit, self.constant(0.5 * (high - low)))
        moved = self("Add", scaled, self.constant(0.5 * (high + low)))
        return self("Min", self("Max", moved, self.constant(low)), self.constant(high))

    def _about(self, name: str, dtype: Any, shape: tuple[int | str, ...]) -> Any:
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self._onnx.helper.make_tensor_value_info(name, kind, list(shape))


def _mlp(graph: _Graph, info: dict[str, Any]) -> None:
    network = info["network"]
    layers, before = network["layers"], []
    first = next(layer for layer in layers if layer["kind"] == "linear")
    x = graph.input("observation", np.float32, ("batch", first["shape"][0]))
    for layer in layers:
        kind, name = layer["kind"], layer["name"]
        if kind == "linear":
            x = graph.linear(name, x)
        elif kind == "normalise":
            x = graph("Div", graph("Sub", x, graph.array(f"{name}/mean")), graph.array(f"{name}/std"))
            x = graph("Max", graph("Min", x, graph.constant(network["limit"])), graph.constant(-network["limit"]))
        elif kind == "layer-norm":
            x = graph.layer_norm(name, x, network["norm_eps"])
        elif kind == "remember":
            before.append(x)
        elif kind == "add":
            x = graph("Add", x, before.pop())
        if layer["activation"] == "relu":
            x = graph("Relu", x)
        elif layer["activation"] == "silu":
            x = graph.silu(x)
        elif layer["activation"] == "tanh":
            x = graph("Tanh", x)
    half = layers[-1]["shape"][1] // 2
    mean = graph("Slice", x, graph.constant([0]), graph.constant([half]), graph.constant([1]))
    action = graph.physical(graph("Tanh", mean), info["action"])
    shape = np.shape(info["action"]["low"])
    graph.output("action", graph.reshape(action, -1, *shape), np.float32, ("batch", *shape))


def _dreamer(graph: _Graph, info: dict[str, Any]) -> None:
    network = info["network"]
    latents, classes, deter_size = network["latents"], network["classes"], network["deter"]
    tokens = _tokens(graph, info)
    deter = graph.input("deter", np.float32, (deter_size,))
    stoch = graph.input("stoch", np.float32, (latents, classes))
    last = graph.input("last_action", np.float32, (network["action_dim"],))
    noise = graph.input("noise", np.float32, (latents, classes))

    deter = _advance(graph, network, deter, stoch, last)
    seen = graph.dense("rssm/posterior_body", graph("Concat", deter, tokens, axis=0))
    logits = graph.reshape(graph.linear("rssm/posterior_head", seen), latents, classes)
    chances = graph("Mul", graph("Softmax", logits, axis=-1), graph.constant(1.0 - UNIFORM))
    chances = graph("Add", chances, graph.constant(UNIFORM / classes))
    drawn = graph("ArgMax", graph("Add", graph("Log", chances), noise), axis=-1, keepdims=0)
    stoch = _one_hot(graph, drawn, classes)
    x = graph("Concat", deter, graph.reshape(stoch, -1), axis=0)
    for i in range(network["actor_layers"]):
        x = graph.dense(f"policy/body/layers/{i}", x)
    size = network["action_dim"]
    if network["discrete"]:
        choice = graph("ArgMax", graph.linear("policy/output", x), axis=0, keepdims=0)
        graph.output("action", choice, np.int64, ())
        unit = graph.reshape(_one_hot(graph, graph.reshape(choice, 1), size), size)
    else:
        unit = graph("Tanh", graph.linear("policy/mean_output", x))
        shape = np.shape(info["action"]["low"])
        graph.output("action", graph.reshape(graph.physical(unit, info["action"]), *shape), np.float32, shape)
    graph.output("next_deter", deter, np.float32, (deter_size,))
    graph.output("next_stoch", stoch, np.float32, (latents, classes))
    graph.output("next_action", unit, np.float32, (size,))


def _tokens(graph: _Graph, info: dict[str, Any]) -> str:
    """The encoder."""
    network, images, numbers, tokens = info["network"], [], [], []
    for part in info["observation"]["parts"]:
        value = graph.input(part["name"], part["dtype"], tuple(part["shape"]))
        if part["kind"] == "image":
            images.append(graph("Cast", value, to=FLOAT))
        elif part["kind"] == "discrete":
            counted = graph("Sub", graph("Cast", value, to=INT64), graph.constant(part["start"]))
            numbers.append(graph.reshape(_one_hot(graph, graph.reshape(counted, -1), part["size"]), -1))
        else:
            size = graph("Log", graph("Add", graph("Abs", value), graph.constant(1.0)))
            numbers.append(graph.reshape(graph("Mul", graph("Sign", value), size), -1))
    if numbers:
        x = graph("Concat", *numbers, axis=0)
        for i in range(network["encoder_layers"]):
            x = graph.dense(f"encoder/mlp/layers/{i}", x)
        tokens.append(x)
    if images:
        image = graph("Div", graph("Concat", *images, axis=2), graph.constant(255.0))
        image = graph("Sub", image, graph.constant(0.5))
        image = graph("Unsqueeze", image, graph.constant([0]))  # [1, height, width, channel]
        for i, halving in enumerate(network["halvings"]):
            image = _stage(graph, f"encoder/stages/{i}", image, halving)
        tokens.append(graph.reshape(image, -1))
    return graph("Concat", *tokens, axis=0)


def _stage(graph: _Graph, name: str, image: str, halving: str) -> str:
    """Convolution, pooling if any, norm and silu. ONNX has channels first, the norm wants them last."""
    kernel = graph.transposed(f"{name}/convolution/weight", (3, 2, 0, 1))
    image = graph("Transpose", image, perm=[0, 3, 1, 2])
    bias, stride = graph.array(f"{name}/convolution/bias"), 2 if halving == "stride" else 1
    image = graph("Conv", image, kernel, bias, auto_pad="SAME_UPPER", strides=[stride, stride])
    if halving == "pool":
        image = graph("MaxPool", image, kernel_shape=[2, 2], strides=[2, 2])
    image = graph("Transpose", image, perm=[0, 2, 3, 1])
    return graph.silu(graph.norm(f"{name}/norm", image))


def _advance(graph: _Graph, network: dict[str, Any], deter: str, stoch: str, action: str) -> str:
    """The memory one action later."""
    blocks = network["blocks"]
    if not network["discrete"]:
        action = graph("Div", action, graph("Max", graph("Abs", action), graph.constant(1.0)))
    read = {"deter_in": deter, "stoch_in": graph.reshape(stoch, -1), "action_in": action}
    shared = graph("Concat", *[graph.dense(f"rssm/{name}", value) for name, value in read.items()], axis=0)
    shared = graph("Tile", graph("Unsqueeze", shared, graph.constant([0])), graph.constant([blocks, 1]))
    inputs = graph("Concat", graph.reshape(deter, blocks, -1), shared, axis=1)
    x = graph.silu(graph.norm("rssm/mix_norm", _block_linear(graph, "rssm/mix", inputs)))
    gates = graph.reshape(_block_linear(graph, "rssm/gates", graph.reshape(x, blocks, -1)), blocks, 3, -1)
    reset, candidate, update = (
        graph.reshape(graph("Gather", gates, graph.constant(i), axis=1), network["deter"]) for i in range(3)
    )
    candidate = graph("Tanh", graph("Mul", graph("Sigmoid", reset), candidate))
    update = graph("Sigmoid", graph("Sub", update, graph.constant(1.0)))
    kept = graph("Mul", graph("Sub", graph.constant(1.0), update), deter)
    return graph("Add", graph("Mul", update, candidate), kept)


def _block_linear(graph: _Graph, name: str, x: str) -> str:
    """Block i of the input, [blocks, n], makes block i of the output; flat."""
    rows = graph("MatMul", graph("Unsqueeze", x, graph.constant([1])), graph.array(f"{name}/weight"))
    return graph("Add", graph.reshape(rows, -1), graph.array(f"{name}/bias"))


def _one_hot(graph: _Graph, index: str, size: int) -> str:
    """[n] integers as [n, size]."""
    index = graph("Cast", index, to=INT64)  # onnxruntime knows no other
    return graph("OneHot", index, graph.constant(size), graph.constant(np.array([0.0, 1.0])), axis=-1)
