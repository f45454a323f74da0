"""Names of other libraries and slips of the keyboard lead to the setting that was meant."""

import pytest

from sombrl.algorithms import ALGORITHMS
from sombrl.algorithms.settings import fields_of
from sombrl.config.hints import MEANT, meant, unknown

KNOWN = {
    name: [field for field in fields_of(name) if field not in row.lacks] + ["out"] for name, row in ALGORITHMS.items()
}


@pytest.mark.parametrize(
    ("algorithm", "word", "wanted"),
    [
        ("gp-icem", "lambda", ["bonus_weight"]),
        ("gp-icem", "total_timesteps", ["episodes"]),
        ("mbpo", "total_timesteps", ["decisions"]),
        ("mbpo", "steps", ["decisions"]),
        ("sac", "learning_rate", ["sac.actor_lr", "sac.critic_lr", "sac.temperature_lr"]),
        ("gp-icem", "rank", ["gp.rank"]),
        ("gp-icem", "gp.rnak", ["gp.rank"]),
        ("gp-icem", "bonus_wieght", ["bonus_weight"]),
        ("gp-icem", "zzz", []),
    ],
)
def test_what_was_meant(algorithm, word, wanted):
    assert meant(word, KNOWN[algorithm]) == wanted


def test_every_hint_leads_somewhere():
    everything = {name for known in KNOWN.values() for name in known}
    assert [word for word, names in MEANT.items() if not set(names) <= everything] == []


def test_what_others_decide():
    assert "JAX_PLATFORMS" in str(unknown("--device", [], "option"))
