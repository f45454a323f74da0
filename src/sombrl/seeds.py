"""The seed axis: everything is written for one seed and compiled once for all of them."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key


def over_rows(function: Callable, rows: Any, mapper: Callable[[Callable, Any], Any]) -> Any:
    """`function` of one row for all, by `mapper(one, arrays)`; what is no array is the same for every row."""
    arrays, static = eqx.partition(rows, eqx.is_array)
    static_out: list[Any] = []

    def one(arrays):
        out, rest = eqx.partition(function(eqx.combine(arrays, static)), eqx.is_array)
        static_out.append(rest)
        return out

    mapped = mapper(one, arrays)
    return eqx.combine(mapped, static_out[-1])


def over_seeds(function: Callable, *, double_precision: bool = False) -> Callable:
    """`function` of one seed → a compiled function whose array arguments and results have a leading seed axis.

    On an accelerator the seeds are vmapped: they fill a device that one of them leaves idle. On a CPU they are mapped
    one after the other, so that a seed's numbers do not depend, in any bit, on which others run beside it. (A vmapped
    program differs in the last bits with the number of seeds. A thread per seed would use more cores for small plans,
    but two programs in two threads can starve XLA's thread pool and hang.)
    """

    def one_by_one(one: Callable, arrays: Any) -> Any:
        return jax.lax.map(one, arrays) if jax.default_backend() == "cpu" else jax.vmap(one)(arrays)

    def batched(*args):
        return over_rows(lambda row: function(*row), args, one_by_one)

    compiled = eqx.filter_jit(batched)

    def call(*args):
        with jax.enable_x64(double_precision):
            return compiled(*args)

    return call


def role_keys(seeds: Sequence[int], iteration: int, roles: Sequence[str]) -> dict[str, Key[Array, " seeds"]]:
    """A key per role and seed, a function of (seed, iteration, role) alone.

    So no key is ever saved: a resumed run derives the same ones. And a strategy that draws more in one role
    (Thompson in "imagine") does not shift the numbers of another.
    """
    with jax.enable_x64(False):

        def key(seed: int, role: int):
            # As plain numbers, because JAX's check for reused keys takes a stacked key for a used one.
            return jr.key_data(jr.fold_in(jr.fold_in(jr.key(seed), iteration), role))

        return {role: jr.wrap_key_data(jnp.stack([key(seed, i) for seed in seeds])) for i, role in enumerate(roles)}
