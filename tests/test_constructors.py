"""`sombrl.GPICEM` and its siblings: their signatures are those of the configurations, and wrong names are found."""

import ast
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sombrl
from sombrl.errors import SombrlError

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("GPICEM", "MBPO", "SAC", "MaxInfoSAC", "SimFSVGD", "Dreamer")


def generator():
    """tools/make_constructors.py as a module."""
    spec = importlib.util.spec_from_file_location("make_constructors", ROOT / "tools" / "make_constructors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_file_is_what_the_configurations_say():
    made = generator()
    assert made.source() == made.TARGET.read_text(), "run: python tools/make_constructors.py"


@pytest.mark.parametrize("name", NAMES)
def test_the_example_uses_settings_that_there_are(name):
    (example,) = re.findall(r"Example:\n\s*agent = (.*)", getattr(sombrl, name).__doc__)
    call = ast.parse(example, mode="eval").body.func.value
    assert {keyword.arg for keyword in call.keywords} <= set(inspect.signature(getattr(sombrl, name)).parameters)


def test_every_constructor_shows_its_settings():
    for name in NAMES:
        signature = inspect.signature(getattr(sombrl, name))
        assert next(iter(signature.parameters)) == "env"
        assert all(one.default is not inspect.Parameter.empty for one in list(signature.parameters.values())[1:])
        for parameter in signature.parameters:
            assert f"\n        {parameter}: " in getattr(sombrl, name).__doc__, (name, parameter)
    assert inspect.signature(sombrl.MBPO).parameters["bonus_weight"].default == 1.0
    assert "decisions" not in inspect.signature(sombrl.GPICEM).parameters


@pytest.mark.thorough
def test_a_type_checker_sees_wrong_names_and_types(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        "import sombrl\n"
        'sombrl.GPICEM("Pendulum-v1", bonus_weight=3.0, gp={"rank": 8}, seed=1)\n'
        'sombrl.MBPO("Pendulum-v1", bonus_wieght=3.0)\n'
        'sombrl.SimFSVGD("rc-car", explore="optimstic")\n'
        'sombrl.GPICEM("Pendulum-v1", gp={"rnak": 8})\n'
    )
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--follow-imports=silent", str(script)]
    # A cache that is kept: the first check of JAX takes long.
    environment = os.environ | {"MYPYPATH": str(ROOT / "src"), "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache")}
    asked = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    lines = [line for line in asked.stdout.splitlines() if "error" in line]
    assert asked.returncode == 1 and [line.split(":")[1] for line in lines] == ["3", "4", "5"], asked.stdout
    assert "bonus_wieght" in lines[0] and '"explore"' in lines[1] and '"gp"' in lines[2]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: sombrl.GPICEM(None), "an agent needs an environment"),
        (lambda: sombrl.GPICEM(), "an agent needs an environment"),
        (lambda: sombrl.SAC("MlpPolicy", "Pendulum-v1"), "SAC takes the environment alone by position"),
        (lambda: sombrl.GPICEM("pendulum", gp={"rnak": 3}), 'unknown setting gp.rnak: did you mean gp={"rank": ...}?'),
        (lambda: sombrl.GPICEM("pendulum", rank=3), 'unknown setting rank: did you mean gp={"rank": ...}?'),
        (lambda: sombrl.SAC("pendulum", learning_rate=1e-3), 'did you mean sac={"actor_lr": ...} or sac='),
        (lambda: sombrl.GPICEM("pendulum", decisions=9), "give --episodes, not --decisions"),
        (lambda: sombrl.SimFSVGD("rc-car", schedule="theoretical"), "--schedule theoretical is for gp-icem only"),
        (
            lambda: sombrl.Dreamer("Pendulum-v1", downstream=["spin"]),
            "--downstream is not for dreamer: explore",
        ),
        (lambda: sombrl.MBPO("pendulum", theory={"delta": 0.1}), "--theory is for --schedule theoretical"),
        (lambda: sombrl.SAC("pendulum", bonus_weight=3.0), "--bonus-weight does nothing in sac"),
        (lambda: sombrl.SAC("pendulum", sac={"bonus_rows": 3}), "--sac.bonus-rows does nothing in sac"),
        (lambda: sombrl.GPICEM("pendulum", config=3), "the config of gp-icem must be a GPICEMConfig, not 3."),
        (lambda: sombrl.GPICEM("pendulum", device="cpu"), "JAX_PLATFORMS"),
    ],
)
def test_mistakes_are_refused_in_a_sentence(make, sentence):
    with pytest.raises(SombrlError) as error:
        make()
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_wrong_types_are_refused_at_any_depth(monkeypatch):
    """The tests check types themselves, so the checker is asked in a process without their hook."""
    script = (
        "import sombrl\n"
        'for settings in ({"gp": {"rank": "x"}}, {"seeds": 1.5}, {"gp": 3}, {"downstream": "spin"}):\n'
        "    try:\n"
        '        sombrl.GPICEM("pendulum", **settings)\n'
        "    except sombrl.SombrlError as error:\n"
        "        print(error)\n"
        'agent = sombrl.GPICEM("pendulum")\n'
        "for call in (agent.learn, agent.evaluate, agent.max_uncertainty, sombrl.load):\n"
        "    try:\n"
        "        call(None)\n"
        "    except sombrl.SombrlError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "--gp.rank must be a whole number of at least 1, not 'x'.",
        "--seeds must be a whole number of at least 1, not 1.5: it is how many to train, from --seed on.",
        "--gp must be GPConfig(...), not 3.",
        "--downstream must be a list of texts, not 'spin'.",
        "learn needs a whole number of decisions, at least 1, not None.",
        "evaluate needs a whole number of episodes, at least 1, not None.",
        "max_uncertainty needs a whole number of episodes, at least 1, not None.",
        "load needs the path of a run's folder, not None.",
    ], done.stderr


def test_settings_of_a_config_are_kept_where_nothing_else_is_said():
    """What a signature shows as a default is not given: the config's own value counts."""
    from sombrl.algorithms import GPICEMConfig
    from sombrl.controllers.icem import ICEMConfig
    from sombrl.exploration.config import ExploreConfig

    config = GPICEMConfig(explore=ExploreConfig(bonus_weight=3.0), icem=ICEMConfig(horizon=7))
    agent = sombrl.GPICEM("pendulum", config=config, icem={"iterations": 2}, env_kwargs={"reward": "sparse"})
    assert agent.config.explore.bonus_weight == 3.0
    assert (agent.config.icem.horizon, agent.config.icem.iterations) == (7, 2)
    assert agent.run_config.env_kwargs == ("reward=sparse",)


def test_public_names_come_when_they_are_asked_for():
    """JAX takes seconds to import, and a car's server, `sombrl --help` and `sombrl list` do without it."""
    script = (
        "import sys, sombrl, sombrl.cli.app, sombrl.hardware.remote\n"
        'assert "jax" not in sys.modules\n'
        "from sombrl import *\n"
        "assert all(vars(sombrl)[name] is globals()[name] for name in sombrl.__all__)\n"
        'assert sombrl.agent.make is sombrl.make and not hasattr(sombrl, "maek")\n'
    )
    subprocess.run([sys.executable, "-c", script], check=True)
