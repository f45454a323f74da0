"""The script that a worker process runs. It puts the package in place without its `__init__`, which loads JAX.

A simulator needs neither those seconds nor that memory. An environment of a user may import names from `sombrl` all the
same: then the `__init__` runs after all. Not `multiprocessing`: that would run the caller's script again in each child,
which surprises scripts without a guard.
"""

import importlib.util
import json
import os
import sys
import types
from typing import Any


def install_package(folder: str) -> None:
    """Make `sombrl` a package whose `__init__` runs when one of its names is asked for."""
    init = os.path.join(folder, "__init__.py")
    package = types.ModuleType("sombrl")
    package.__path__, package.__file__ = [folder], init

    def load(name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        del package.__getattr__
        spec = importlib.util.spec_from_file_location("sombrl", init, submodule_search_locations=[folder])
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(package)
        return getattr(package, name)

    package.__getattr__ = load  # type: ignore[method-assign]
    sys.modules["sombrl"] = package


if __name__ == "__main__":
    link_fd, sys.path[:], folder = json.loads(sys.argv[1])
    install_package(folder)
    from sombrl.envs.adapters.worker import serve

    serve(link_fd)
    os._exit(0)  # nothing is left to clean up
