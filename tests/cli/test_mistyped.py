"""What people mistype on the command line is answered in one sentence that says what was meant."""

import json

import pytest

from tests.small import call

TYPED = [
    ("train gp-icem --lambda 5", "unknown option --lambda: did you mean --bonus-weight?"),
    ("train mbpo --total-timesteps 5000", "did you mean --decisions?"),
    ("train mbpo --steps 5000", "did you mean --decisions?"),
    ("train gp-icem --steps 5000", "did you mean --episodes?"),
    ("train gp-icem --device cpu", "set JAX_PLATFORMS"),
    ("train gp-icem --bonus-wieght 3", "did you mean --bonus-weight?"),
    ("train gp-icem --gp.rnak=3", "did you mean --gp.rank?"),
    ("train gp-icem --zzz", "unknown option --zzz (see: sombrl train gp-icem --help-all)"),
    ("train gp-icem --sac.tau 3", "--sac.tau is for mbpo, sac, maxinfo-sac, sim-fsvgd, not for gp-icem: leave it out."),
    ("train gp-icem --explore ucb", "--explore must be one of greedy, pets, thompson, hucrl, optimistic, unsupervised"),
    ("train sim-fsvgd --explore ucb", "--explore must be one of greedy, pets, thompson, optimistic, unsupervised"),
    ("train sac --explore optimistic", "sac has no model to be uncertain about"),
    ("train sac --bonus-weight 3", "--bonus-weight does nothing in sac"),
    ("train sac --sac.bonus-enters reward", "--sac.bonus-enters does nothing in sac"),
    ("train maxinfo-sac --sac.mix half", "--sac.mix is about data that a model imagines"),
    (
        "train dreamer --downstream spin",
        "explore without a task (--explore unsupervised --out RUN), then train",
    ),
    ("train dreamer --setting discounted", "--setting discounted does not go with dreamer"),
    ("train dreamer --update-every 3", "--update-every is for --setting non-episodic"),
    ("train sim-fsvgd --schedule theoretical", "--schedule theoretical is for gp-icem only"),
    ("train mbpo --schedule theoretical --bonus norm", "--schedule theoretical is for gp-icem only"),
    ("train sim-fsvgd --schedule constant", "or add --bonus-weight-end None"),
    ("train mbpo --theory.delta 0.1", "--theory.delta is for --schedule theoretical"),
    ("train gp-icem --decisions 5", "give --episodes, not --decisions"),
    ("train gp-icem --schedule auto", "--schedule auto tunes λ against a policy, and a planner has none"),
    ("train gp-icem --no-films", "is for dreamer"),
    ("train gp-icem --seeds ten", "--seeds must be a whole number of at least 1, not 'ten'"),
    ("train gp-icem --gp.noise-std x", "--gp.noise-std must be positive and finite, not 'x'"),
    (
        "train sac --sac.hidden 256,256",
        "--sac.hidden must be a list of one or more whole numbers, each at least 1, not '256,256': put spaces",
    ),
    (
        "train sac --sac.actor-hidden 3 x",
        "--sac.actor-hidden must be a list of one or more whole numbers, each at least 1",
    ),
    ("train gp-icem --seeds", "--seeds needs a value (see: sombrl train gp-icem --help)"),
    ("train gp-icem more", "train gp-icem does not take 'more' here"),
    ("train gp-icem --setting discount", 'did you mean "discounted"?'),
    ("train mbpo --preset lihgt", 'did you mean "light"?'),
    ("eval", "eval needs RUN (see: sombrl eval --help)"),
    ("eval x --taks spin", "unknown option --taks: did you mean --task?"),
    ("eval a b", "eval does not take 'b' here"),
    ("export x", "export needs --out (see: sombrl export --help)"),
    ("report x --axis farmes", "--axis must be one of frames, decisions, not 'farmes': did you mean \"frames\"?"),
    ("resume x --gp.rank 3", "unknown option --gp.rank (see: sombrl resume --help)"),
    ("resume x --episodes many", "--episodes must be a whole number or None, not 'many'"),
    ("sweep", "sweep needs SPEC"),
    (
        "sweep x.toml --backend lokal",
        "--backend must be one of local, ray, slurm, not 'lokal'",
    ),
    ("status x --every ten", "--every must be a number, not 'ten'"),
    ("list envs more", "sombrl list envs takes --installed or nothing more, not 'more'"),
    ("hardware status", "hardware status needs CAMPAIGN"),
]


@pytest.mark.parametrize(("typed", "answer"), TYPED, ids=[typed for typed, _ in TYPED])
def test_the_answer_is_one_sentence(typed, answer, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(typed.split(), capsys)
    assert code == 2 and answer in err, err
    assert err.startswith("sombrl: ") and err.count("\n") == 1 and "─" not in err and out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_task_of_the_suite_needs_its_prefix(capsys, tmp_path, monkeypatch):
    pytest.importorskip("dm_control")
    monkeypatch.chdir(tmp_path)
    code, _, err = call(["train", "gp-icem", "--env", "cartpole-swingup"], capsys)
    assert code == 2 and 'did you mean "dmc:cartpole-swingup"?' in err


@pytest.mark.parametrize("command", ["eval", "bounds", "resume", "export-policy --out x", "export-replay --out x"])
def test_a_folder_of_runs_names_those_inside(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("greedy", "optimistic"):
        (tmp_path / "demo" / name).mkdir(parents=True)
        (tmp_path / "demo" / name / "config.json").write_text(json.dumps({}))
    name, *options = command.split()
    code, _, err = call([name, "demo", *options], capsys)
    assert code == 2 and f"greedy/ and optimistic/ inside: choose one, as in sombrl {name} demo/greedy." in err


def test_a_setting_of_another_strategy_does_nothing_and_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, _, err = call(
        ["train", "gp-icem", "--env", "CartPole-v1", "--explore", "greedy", "--bonus-weight", "50"], capsys
    )
    note, refusal = err.splitlines()
    assert note == "sombrl: --bonus-weight does nothing with --explore greedy: it is for optimistic and pessimistic."
    assert "Discrete" in refusal
