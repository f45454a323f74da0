"""A Python whose only package is NumPy."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from sombrl.export import policy


def alone(folder: Path, site: Path, code: str) -> subprocess.CompletedProcess:
    """Run code in a Python whose only package is NumPy."""
    site.mkdir(exist_ok=True)
    packages = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (packages / name).exists() and not (site / name).exists():
            (site / name).symlink_to(packages / name)
    begin = f"import sys; sys.path[:0] = [{str(folder)!r}, {str(site)!r}]\n"
    command = [sys.executable, "-I", "-S", "-c", begin + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=site)


ALONE = """
import importlib.util, json
import numpy as np
import policy
for name in ("sombrl", "jax", "equinox", "gymnasium"):
    assert importlib.util.find_spec(name) is None, name
pilot = policy.load()
assert pilot.check() <= pilot.info["examples"]["tolerance"]
state, actions = None, []
for obs in json.loads({obs!r}):
    action, state = pilot.act(np.array(obs, np.float32), state)
    actions.append(action.tolist())
print(json.dumps(actions))
"""


def same_with_numpy_alone(folder: Path, obs: np.ndarray) -> None:
    """Its examples and a sequence of observations, here and there."""
    done = alone(folder, folder.parent / "site", ALONE.format(obs=json.dumps(obs.tolist())))
    assert done.returncode == 0, done.stderr
    here, state = policy.load(folder), None
    for one, there in zip(obs, json.loads(done.stdout), strict=True):
        action, state = here.act(one, state)
        np.testing.assert_allclose(action, there, atol=1e-6)
