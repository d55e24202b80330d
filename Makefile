# Everything runs in .venv, which is created on first use. Choose another interpreter with: make PYTHON=python3.12 ...
PYTHON ?= python3
OUT ?= out
ARGS ?=
ROUNDS ?= 10

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check
# Files with slow tests start first (tests/conftest.py), so that all workers end at about the same time.
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder
# A third of the time of all tests is waiting: for processes, sockets and locks.
WORKERS ?= $(shell expr 2 '*' $$(getconf _NPROCESSORS_ONLN))
# Workers that start without compiled kernels would all compile the same ones.
COMPILE := $(BIN)/python -m tests.compile_kernels

# Containers often set this. Every test process, and every process that a test starts, would compile all sources again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run check test nightly lint bench bench-serve docs package release lowest clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | \
		awk -F ':.*## ' '{ printf "make %-11s %s\n", $$1, $$2 }'

run: $(VENV)/.run ## test the paper's claims: verdicts here, report, figures and results in out/
	$(BIN)/bothworlds reproduce --size quick --out $(OUT) $(ARGS)

check: lint ## lint and run the quick tests (ARGS="-k geometry" for some)
	$(PYTEST) -n auto -q -m "not slow and not nightly" --ignore docs/add-a-policy.md $(ARGS)

test: $(VENV)/.dev ## run all tests and documentation examples (ARGS="-k geometry" for some)
	$(if $(ARGS),,$(COMPILE))
	$(PYTEST) -n $(WORKERS) $(ARGS)

# The profile "here" draws new Hypothesis examples, also with CI set; ROUNDS times as many as in one run of the tests.
nightly: $(VENV)/.nightly ## run all tests, also those marked nightly, with new Hypothesis examples (ROUNDS=10)
	$(PYTEST) -n $(WORKERS) -m "" --hypothesis-profile here $(ARGS)
	for round in $$(seq 2 $(ROUNDS)); do \
		$(PYTEST) -n auto -q -m hypothesis --hypothesis-profile here $(ARGS) || exit 1; \
	done

lint: $(VENV)/.dev ## check style, format, types and the layers between the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.bench ## measure speed
	$(BIN)/python -m benchmarks $(ARGS)

bench-serve: $(VENV)/.dev ## measure the service under load, on SQLite and on PostgreSQL
	$(BIN)/python -m benchmarks serving $(ARGS)

docs: $(VENV)/.docs ## build the documentation into docs/_build/html
	$(BIN)/python -m sphinx -E -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

package: $(VENV)/.package ## build wheel and sdist, install the wheel into an empty environment and use it; check deploy/
	rm -rf dist build/package
	$(BIN)/python -m build -q
	$(BIN)/twine check --strict dist/*
	"$(PYTHON)" -m venv build/package
	build/package/bin/python -m pip install -q --disable-pip-version-check dist/*.whl
	build/package/bin/python -I tests/packaging/smoke.py
	build/package/bin/python -m pip install -q --disable-pip-version-check "$$(ls dist/*.whl)[service]"
	build/package/bin/python -I tests/packaging/smoke.py service
	$(BIN)/python tests/packaging/image.py
	$(BIN)/check-jsonschema -q --builtin-schema vendor.compose-spec deploy/compose.yaml
	$(BIN)/check-jsonschema -q --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/kubernetes-validate --strict --quiet deploy/kubernetes.yaml

release: package ## check that this commit can be released, build it, and print what to push
	@$(BIN)/python tests/packaging/release.py

lowest: ## run the quick tests with the lowest versions of all dependencies, in .venv-lowest
	"$(PYTHON)" -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install -q --disable-pip-version-check uv
	.venv-lowest/bin/uv pip install -q --python .venv-lowest/bin/python --resolution lowest-direct -e '.[dev]'
	.venv-lowest/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -q -m "not slow" $(ARGS)

clean: ## remove .venv, caches, results and the built documentation
	rm -rf $(VENV) .venv-lowest $(OUT) build dist docs/_build
	rm -rf .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Stamps: packages are installed again only when pyproject.toml has changed.

$(VENV)/.python:
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "bothworlds needs Python 3.11 to 3.13, but there is no '$(PYTHON)'; try: make PYTHON=/path/to/python3" >&2; \
		exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
		echo "bothworlds needs Python 3.11 to 3.13, but '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1);" \
			"try: make PYTHON=python3.11" >&2; \
		exit 1; }
	@echo "making $(VENV) with $(PYTHON)"
	@"$(PYTHON)" -m venv $(VENV)
	@touch $@

# Python compiles the modules that it imports; pip would compile all of them first, which takes ten seconds more.
$(VENV)/.run: $(VENV)/.python pyproject.toml
	@echo "installing bothworlds and what it needs into $(VENV), once"
	@$(INSTALL) --no-compile -e '.[figures,parquet]'
	@touch $@

$(VENV)/.bench: $(VENV)/.python pyproject.toml
	$(INSTALL) -e '.[figures,parquet,clicks]'
	@touch $@ $(VENV)/.run

$(VENV)/.dev: $(VENV)/.python pyproject.toml
	$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.run $(VENV)/.bench

$(VENV)/.package: $(VENV)/.python pyproject.toml
	$(INSTALL) build check-jsonschema kubernetes-validate twine
	@touch $@

$(VENV)/.nightly: $(VENV)/.python pyproject.toml
	$(INSTALL) -e '.[dev,peers]'
	@touch $@ $(VENV)/.run $(VENV)/.bench $(VENV)/.dev

$(VENV)/.docs: $(VENV)/.python pyproject.toml
	$(INSTALL) -e '.[docs]'
	@touch $@ $(VENV)/.run $(VENV)/.bench
