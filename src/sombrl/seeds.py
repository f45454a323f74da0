"""The seed axis: everything is written for one seed and compiled once for all of them."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, Key, UInt


def over_rows(function: Callable[..., Any], rows: Any, mapper: Callable[[Callable[[Any], Any], Any], Any]) -> Any:
    """`function` of one row for all rows, by `mapper(one, arrays)`; what is not an array is the same for every row."""
    arrays, static = eqx.partition(rows, eqx.is_array)
    static_out: list[Any] = []

    def one(arrays: Any) -> Any:
        out, rest = eqx.partition(function(eqx.combine(arrays, static)), eqx.is_array)
        static_out.append(rest)
        return out

    mapped = mapper(one, arrays)
    return eqx.combine(mapped, static_out[-1])


def shards_of(rows: int, apart: bool = False) -> list[slice]:
    """The rows of each dispatch: all together on an accelerator, which a single row would leave mostly idle.

    On a CPU, or with `apart`, every row has a dispatch of its own, so that its bits do not depend on its neighbours.
    """
    one_by_one = apart or jax.default_backend() == "cpu"
    return [slice(i, i + 1) for i in range(rows)] if one_by_one else [slice(0, rows)]


def over_shard(function: Callable[..., Any], rows: Any) -> Any:
    """`function` of one row, for the rows of a shard."""

    def mapper(one: Callable[[Any], Any], arrays: Any) -> Any:
        if jax.tree.leaves(arrays)[0].shape[0] > 1:
            return jax.vmap(one)(arrays)
        return jax.tree.map(lambda leaf: leaf[None], one(jax.tree.map(lambda leaf: leaf[0], arrays)))

    return over_rows(function, rows, mapper)


def take(tree: Any, shard: slice) -> Any:
    """The rows of a shard."""
    return jax.tree.map(lambda leaf: leaf[shard] if eqx.is_array(leaf) else leaf, tree)


def concat(trees: Sequence[Any]) -> Any:
    """The rows of all shards in one tree."""
    return trees[0] if len(trees) == 1 else jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)


def side_by_side(one: Callable[[Any], Any], arrays: Any) -> Any:
    """`one` of every row: at once on an accelerator, one after the other on a CPU."""
    return jax.lax.map(one, arrays) if jax.default_backend() == "cpu" else jax.vmap(one)(arrays)


def over_seeds(function: Callable[..., Any], *, double_precision: bool = False) -> Callable[..., Any]:
    """`function` of one seed → a compiled function whose array arguments and results have a leading seed axis.

    On an accelerator the seeds are vmapped: they fill a device that one of them leaves idle. On a CPU they are mapped
    one after the other, so that a seed's numbers do not depend, in any bit, on which others run beside it. (A vmapped
    program differs in the last bits with the number of seeds. A thread per seed would use more cores for small plans,
    but two programs in two threads can starve XLA's thread pool and hang.)
    """

    def batched(*args: Any) -> Any:
        return over_rows(lambda row: function(*row), args, side_by_side)

    compiled = eqx.filter_jit(batched)

    def call(*args: Any) -> Any:
        with jax.enable_x64(double_precision):
            return compiled(*args)

    return call


def keyed_by(
    roles: Sequence[str],
) -> Callable[[int | UInt[Array, ""], int | Int[Array, ""], str], Key[Array, ""]]:
    """(seed, time, role) ↦ a key, a function of these alone: no key is ever saved, a resumed run derives the same."""
    return lambda seed, now, role: jr.fold_in(jr.fold_in(jr.key(seed), now), roles.index(role))


def role_keys(seeds: Sequence[int], iteration: int, roles: Sequence[str]) -> dict[str, Key[Array, " seeds"]]:
    """A key per role and seed (`keyed_by`).

    A strategy that draws more in one role (Thompson in "imagine") does not shift the numbers of another.
    """
    key = keyed_by(roles)
    with jax.enable_x64(False):
        # As plain numbers, because JAX's check for reused keys takes a stacked key for a used one.
        numbers = {role: [jr.key_data(key(seed, iteration, role)) for seed in seeds] for role in roles}
        return {role: jr.wrap_key_data(jnp.stack(ours)) for role, ours in numbers.items()}
