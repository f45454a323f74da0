"""Exported policies are the agents' own, to float32's rounding, also where only NumPy can be imported."""

import json
import os

import numpy as np
import pytest

import sombrl
from sombrl.cli.main import main
from sombrl.errors import RunFault, SombrlError
from sombrl.export import export_policy, policy
from tests.export.agents import NETS, STRONG_NETS, with_data
from tests.export.comparing import CLOSE, largest, observations
from tests.export.numpy_alone import alone, same_with_numpy_alone
from tests.small import small

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def sac():
    """Of two seeds, with actions from (-1, 0) to (3, 4) and observations that are no vectors."""
    return with_data("sac", "sombrl-tests/Tiny-v0", seeds=2, sac=NETS)


def test_sac_acts_as_the_agent_does(sac, tmp_path):
    pilot = policy.load(export_policy(sac, tmp_path / "new" / "pilot"))
    assert largest(sac, pilot) < CLOSE
    assert sorted(os.listdir(tmp_path / "new" / "pilot")) == ["policy.json", "policy.npz", "policy.py"]
    assert os.listdir(tmp_path / "new") == ["pilot"]
    assert pilot.info["action"] == {"kind": "continuous", "low": [-1, 0], "high": [3, 4], "dtype": "float32"}
    obs = np.arange(4.0).reshape(2, 2)  # as the environment gives it
    np.testing.assert_array_equal(pilot.act(obs)[0], pilot.act(obs.reshape(-1))[0])
    with pytest.raises(ValueError, match=r"obs of an observation is \[4\], not \[3\]"):
        pilot.act(np.zeros(3))


@pytest.mark.thorough
def test_every_seed_has_its_own(sac, tmp_path):
    only = with_data("sac", "sombrl-tests/Tiny-v0", seed=1, sac=NETS)
    second = policy.load(export_policy(sac, tmp_path / "second", seed=1))
    assert largest(only, second) < CLOSE < 1e-2 < largest(sac, second)
    with pytest.raises(SombrlError, match="no seed 7 in this run: it has 0, 1"):
        export_policy(sac, tmp_path / "seventh", seed=7)
    assert not (tmp_path / "seventh").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("mbpo", {"sac": NETS, "ensemble": {"hidden": (8,)}}),
        ("maxinfo-sac", {"sac": NETS, "ensemble": {"hidden": (8,)}}),
        ("mbpo", {"sac": STRONG_NETS, "ensemble": {"hidden": (8,)}}),
        ("sac", {"sac": NETS | {"actor": "bronet"}}),
        ("sac", {"sac": NETS | {"actor": "bro", "first_norm": True}}),
    ],
)
def test_other_policies_act_as_their_agents_do(algorithm, settings, tmp_path):
    agent = with_data(algorithm, "Pendulum-v1", **settings)
    pilot = policy.load(export_policy(agent, tmp_path / "pilot"))
    assert largest(agent, pilot) < CLOSE
    assert pilot.info["algorithm"] == algorithm and pilot.info["decisions"] == 20


def test_it_loads_where_there_is_only_numpy(sac, tmp_path):
    same_with_numpy_alone(export_policy(sac, tmp_path / "pilot"), observations(4, number=10))


def test_strong_networks_load_where_there_is_only_numpy(tmp_path):
    agent = with_data("sac", "Pendulum-v1", sac=STRONG_NETS)
    folder = export_policy(agent, tmp_path / "pilot")
    kinds = [layer["kind"] for layer in json.loads((folder / "policy.json").read_text())["network"]["layers"]]
    block = ["remember", "layer-norm", "linear", "linear", "add"]
    assert kinds == ["normalise", "linear", *block, "layer-norm", "linear"]
    same_with_numpy_alone(folder, observations(3, number=10))


def test_the_file_itself_tells_whether_it_is_whole(sac, tmp_path):
    folder = export_policy(sac, tmp_path / "pilot")
    run = f"import runpy; runpy.run_path({str(folder / 'policy.py')!r}, run_name='__main__')"
    done = alone(tmp_path, tmp_path / "site", run)
    assert done.returncode == 0 and "8 recorded actions repeated within" in done.stdout
    info = json.loads((folder / "policy.json").read_text())
    info["examples"]["actions"][3][0] += 1e-3
    (folder / "policy.json").write_text(json.dumps(info))
    done = alone(tmp_path, tmp_path / "site", run)
    assert done.returncode == 1 and "is the folder damaged?" in done.stderr


def test_from_the_command_line(sac, tmp_path, capsys):
    sac.save(tmp_path / "run")
    main(["export-policy", str(tmp_path / "run"), "--out", str(tmp_path / "pilot"), "--seed", "1"])
    assert f"wrote {tmp_path / 'pilot'}" in capsys.readouterr().out
    assert policy.load(tmp_path / "pilot").info["seed"] == 1
    before = {path.name: path.read_bytes() for path in (tmp_path / "pilot").iterdir()}
    with pytest.raises(SystemExit) as stop:
        main(["export-policy", str(tmp_path / "run"), "--out", str(tmp_path / "pilot")])
    assert stop.value.code == 2 and "is there already" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (tmp_path / "pilot").iterdir()} == before


def test_what_cannot_be_exported_gets_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(SombrlError, match=r"gp-icem plans every decision .* no policy to export"):
        export_policy(small(), tmp_path / "a")
    planned = with_data("mbpo", "pendulum", controller="icem", schedule="constant", ensemble={"hidden": (8,)})
    with pytest.raises(SombrlError, match="mbpo plans every decision"):
        export_policy(planned, tmp_path / "a")
    with pytest.raises(SombrlError, match="learned nothing yet"):
        export_policy(sombrl.SAC("pendulum", sac=NETS), tmp_path / "a")
    agent = with_data("sac", "pendulum", sac=NETS)
    monkeypatch.setattr(policy.MLPPolicy, "check", lambda self: float("nan"))
    with pytest.raises(RunFault, match="its actions differ from the agent's"):
        export_policy(agent, tmp_path / "a")
    assert os.listdir(tmp_path) == []
