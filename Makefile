# Every target sets up what it needs in .venv: only Python 3.11+ and make are assumed.
PYTHON ?= python3
BIN := .venv/bin
# One BLAS thread: spinning OpenBLAS threads make a busy machine's Cholesky many times slower.
export OPENBLAS_NUM_THREADS := 1
LOCK := $(PYTHON) -m uv pip compile --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-annotate --no-header \
	--extra report --extra tb --extra video --extra dmc --extra dev pyproject.toml -o requirements.lock

.PHONY: setup demo test test-all test-thorough test-slow test-extras test-recipes bench bench-peers lint docs dist try-wheel lock clean

setup: .venv/.ready

.venv/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "sombrl needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

demo: setup  ## optimistic against greedy on sparse MountainCar: a table, a film and a page
	$(BIN)/sombrl demo

test: setup  ## every part, contract and oracle, in a few minutes
	$(BIN)/python -m pytest

test-all: test test-thorough  ## all but the learning runs

test-thorough: setup  ## what takes longer: more settings, more kills, programs compiled as a user's are
	$(BIN)/python -m pytest -m "thorough and not slow and not optimised"
	XLA_FLAGS= $(BIN)/python -m pytest -m "optimised and not slow"

test-slow: setup  ## the learning runs, compiled as a user's are
	XLA_FLAGS= $(BIN)/python -m pytest -m slow

test-extras: .venv-extras/.ready  ## what optional packages are for: sweeps, exports, TensorBoard, the page in a browser, Playground, oracles
	.venv-extras/bin/python -m pytest -n 0 -m "slow or not slow" tests/sweep tests/export tests/runs/test_sinks.py tests/report/test_browser.py tests/docs/test_browser.py \
		tests/envs/test_playground.py tests/envs/test_playground_kill.py tests/dynamics/test_gpjax.py
	.venv-extras/bin/python -m pytest -n 0 tests/envs/test_contract.py -k playground

.venv-extras/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv-extras
	.venv-extras/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	.venv-extras/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation tensorboard onnxruntime gpjax jax2onnx \
		-e '.[ray,slurm,tune,onnx,minari,parquet,wandb,browser,playground]'
	@touch $@

test-recipes: setup  ## docs/recipes.md: Meta-World, Gymnasium-Robotics and MyoSuite, each downloaded into an environment of its own
	$(BIN)/python -m pytest -n 0 -m recipes tests/recipes

bench: setup  ## steady state and compile time apart; writes runs/bench/, results/bench/ has ours
	$(BIN)/python -m benchmarks.sac
	$(BIN)/python -m benchmarks.mbpo
	$(BIN)/python -m benchmarks.hardware
	$(BIN)/python -m benchmarks.sim_fsvgd
	$(BIN)/python -m benchmarks.parking
	$(BIN)/python -m benchmarks.dreamer
	$(BIN)/python -m benchmarks.jobs
	$(BIN)/python -m benchmarks.gp_icem  # last, because it fails when it misses its bars

bench-peers: .venv-peers/.ready  ## the libraries that `make bench` compares with, apart from ours

.venv-peers/.ready: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers/requirements.txt
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv-docs/.ready  ## the documentation site, strict: site/index.html opens without a server
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build

.venv-docs/.ready: docs/requirements.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r docs/requirements.txt
	@touch $@

dist: setup  ## wheel and sdist
	rm -rf dist
	$(BIN)/hatchling build

try-wheel: dist  ## the wheel in an empty environment of $(PYTHON): the core alone, then with pictures
	tools/try_wheel.sh dist/*.whl $(PYTHON)
	tools/try_wheel.sh dist/*.whl $(PYTHON) report,tb

lock:  ## rewrite requirements.lock (needs uv for $(PYTHON))
	$(LOCK)
	$(PYTHON) -m uv pip compile --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-annotate --no-header \
		docs/requirements.in -o docs/requirements.txt

clean:
	rm -rf .venv .venv-extras .venv-peers .venv-docs site
