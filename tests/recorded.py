"""Recorded transitions for tests of what learns from them."""

import numpy as np


def columns(episodes=5, length=8, obs_dim=3, action_dim=1, seed=0, truncated=True):
    """Episodes of a made-up world, of Pendulum's sizes."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(episodes, length + 1, obs_dim)).astype(np.float32)
    found = {
        "obs": obs[:, :-1],
        "action": rng.uniform(-1, 1, (episodes, length, action_dim)).astype(np.float32),
        "reward": -rng.uniform(0, 1, (episodes, length)).astype(np.float32),
        "next_obs": obs[:, 1:],
        "terminated": np.zeros((episodes, length), bool),
        "truncated": np.broadcast_to(np.arange(length) == length - 1, (episodes, length)),
    }
    flat = {name: np.ascontiguousarray(column.reshape(-1, *column.shape[2:])) for name, column in found.items()}
    return flat if truncated else {name: column for name, column in flat.items() if name != "truncated"}


def write_npz(path, **changes):
    """Those episodes as a file; a change that is None leaves a column out."""
    found = columns() | changes
    np.savez(path, **{name: column for name, column in found.items() if column is not None})
    return path


def write_minari(folder, given, length=8):
    """The same columns as Minari 0.5 lays them out, without Minari: a group for each episode."""
    import h5py

    (folder / "data").mkdir(parents=True)
    (folder / "data" / "metadata.json").write_text("{}")
    with h5py.File(folder / "data" / "main_data.hdf5", "w") as file:
        for number, start in enumerate(range(0, len(given["reward"]), length)):
            cut, group = slice(start, start + length), file.create_group(f"episode_{number}")
            group["observations"] = np.concatenate([given["obs"][cut], given["next_obs"][cut][-1:]])
            for name, column in (("actions", "action"), ("rewards", "reward")):
                group[name] = given[column][cut]
            for name, column in (("terminations", "terminated"), ("truncations", "truncated")):
                group[name] = given[column][cut]
    return folder
