# Two commands for a newcomer: `make compare` shows what privacy costs a bandit, `make test` runs the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: compare test lint style types suite bench nightly fuzz pages index tuned lock clean

compare: $(READY)  ## the main job: policies x trust x epsilon, with a table, a picture and a report
	$(BIN)/kerchief compare

test: $(READY) style  ## everything that must hold on every change; types are checked meanwhile
	$(MAKE) --no-print-directory --jobs=2 types suite

lint: $(READY) style types  ## format, lint, import arrows and types

style: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python -m tools.vague_names

types: $(READY)
	$(BIN)/mypy --num-workers=2

suite: $(READY)
	$(BIN)/python -m pytest --numprocesses=2 --dist=worksteal

bench: $(READY)  ## microseconds per decision beside a plain NumPy LinUCB
	$(BIN)/python -m tools.bench $(ARGS)

nightly: $(READY)  ## the long statistical tests, and every experiment of the catalogue at full size
	XLA_FLAGS= $(BIN)/python -m pytest -m nightly --numprocesses=2

fuzz: $(READY)  ## a million hostile inputs to everything that strangers can reach
	$(BIN)/python -m tests.fuzz.fuzzer --inputs 1000000 --processes 2

pages: $(READY)  ## write the pages of proofs, of the catalogue, and of algorithms by line
	$(BIN)/python -m tools.pages

index: $(READY)  ## write down what `kerchief --help` and `kerchief list` show
	$(BIN)/python -m kerchief.cli.make_index

tuned: $(READY)  ## write down the numbers that recorded searches chose, for the bandits
	$(BIN)/python -m tools.tuning.make_tuned

$(READY): requirements.lock pyproject.toml device/pyproject.toml
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 14) else f"kerchief needs Python 3.11 to 3.13, and {sys.executable} is {v.major}.{v.minor}; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e ./device -e .
	touch $(READY)

lock:  ## resolve the dependencies anew (needs uv)
	uv pip compile --quiet --universal --fork-strategy fewest --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate --no-emit-package kerchief-device \
	  --extra report --group dev pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) results .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
