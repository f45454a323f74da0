"""A scan with a fast gradient: everything but the recurrence itself is computed for all steps at once.

JAX differentiates a scan step by step: forwards it saves every intermediate of every step, backwards it adds up the
weights' gradient in as many small products as there are steps, in the weights' own type. On a GPU that is most of the
time of a recurrent model. But once the states are known, all steps can be linearised together; only the cotangent of
the state has to travel back step by step, and after it the gradient of the weights is one product for all steps.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Step = Callable[[Any, Any, Any], tuple[Any, Any]]
"""(weights, state, input) ↦ the next state, and an output. It closes over no array."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def recur(step: Step, weights: Any, start: Any, inputs: Any) -> tuple[Any, Any]:
    """The states and the outputs of all steps, stacked. It equals `lax.scan`; only its gradient is faster.

    Put a batch into `step`: under a `vmap` of this function every element gets its own gradient of the weights.
    """

    def advance(state: Any, given: Any) -> tuple[Any, tuple[Any, Any]]:
        state, output = step(weights, state, given)
        return state, (state, output)

    return jax.lax.scan(advance, start, inputs)[1]


def _forwards(step: Step, weights: Any, start: Any, inputs: Any) -> tuple[Any, Any]:
    states, outputs = recur(step, weights, start, inputs)
    return (states, outputs), (weights, start, inputs, states)


def _backwards(step: Step, saved: Any, cotangents: Any) -> tuple[Any, Any, Any]:
    weights, start, inputs, states = saved
    of_states, of_outputs = cotangents
    before = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest[:-1]]), start, states)
    leaves, axes, tree = _pullbacks(step, weights, before, inputs)
    stacked = [leaf if axis == 0 else None for leaf, axis in zip(leaves, axes, strict=True)]

    def back(of_state: Any, given: Any) -> tuple[Any, Any]:
        own, of_own_state, of_output = given
        pullback = jax.tree.unflatten(tree, [a if b is None else b for a, b in zip(leaves, own, strict=True)])
        of_state = jax.tree.map(jnp.add, of_state, of_own_state)
        return pullback((of_state, of_output))[0], of_state

    nothing = jax.tree.map(jnp.zeros_like, start)
    of_start, of_states = jax.lax.scan(back, nothing, (stacked, of_states, of_outputs), reverse=True)
    at_once = jax.vmap(step, in_axes=(None, 0, 0))
    _, pullback = jax.vjp(lambda weights, inputs: at_once(weights, before, inputs), weights, inputs)
    of_weights, of_inputs = pullback((of_states, of_outputs))
    return of_weights, of_start, of_inputs


def _pullbacks(step: Step, weights: Any, before: Any, inputs: Any) -> tuple[list[Any], list[int | None], Any]:
    """What takes cotangents from after a step to before it, for all steps: leaves, their axes of time, and the tree.

    A leaf that is the same for all steps, such as a weight, has no such axis: 64 copies of it would be made.
    """
    trees = []

    def pullback_of(weights: Any, state: Any, given: Any) -> list[Any]:
        _, pullback = jax.vjp(lambda state: step(weights, state, given), state)
        leaves, tree = jax.tree.flatten(pullback)
        trees.append(tree)
        return leaves

    program = jax.make_jaxpr(pullback_of)(weights, *jax.tree.map(lambda leaf: leaf[0], (before, inputs))).jaxpr
    varying = {id(variable) for variable in program.invars[len(jax.tree.leaves(weights)) :]}
    for equation in program.eqns:
        if any(id(variable) in varying for variable in equation.invars):
            varying |= {id(variable) for variable in equation.outvars}
    axes = [0 if id(variable) in varying else None for variable in program.outvars]
    leaves = jax.vmap(pullback_of, in_axes=(None, 0, 0), out_axes=axes)(weights, before, inputs)
    return leaves, axes, trees[-1]


recur.defvjp(_forwards, _backwards)
