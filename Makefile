# `make help` lists the targets. Nothing is needed but Python 3.11+ and make; uv is used when it is there.
.DEFAULT_GOAL := help
SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
BASE_PYTHON := $(shell for p in python3.13 python3.12 python3.11 python3; do command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
EXTRAS := dev,agent,embedded,otel
INSTALLED := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
XDIST ?= -n 2
UPSTREAMS := $(patsubst tests/upstreams/%.txt,.upstreams/%/.installed,$(wildcard tests/upstreams/*.txt))

.PHONY: help setup upstreams clients demo test test-all coverage fuzz check format bench docs pins

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(INSTALLED) ## make .venv with everything in it

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(BASE_PYTHON)" || { echo "Python 3.11 or newer is needed and was not found." >&2; exit 1; }
	@rm -f $(VENV)/.installed-*
	@echo "Setting up $(VENV) (once; takes a minute or so) ..." >&2
	@if uv --version >/dev/null 2>&1; then \
	  test -x $(PY) || UV_PYTHON_DOWNLOADS=never uv venv --quiet --python "$$(command -v $(BASE_PYTHON))" $(VENV); \
	  UV_PYTHON_DOWNLOADS=never uv pip install --quiet --python $(PY) --constraint constraints.txt --editable ".[$(EXTRAS)]"; \
	else \
	  test -x $(VENV)/bin/pip || $(BASE_PYTHON) -m venv $(VENV); \
	  $(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt uv && \
	  $(VENV)/bin/uv pip install --quiet --python $(PY) --constraint constraints.txt --editable ".[$(EXTRAS)]"; \
	fi
	@touch $@

upstreams: $(UPSTREAMS) ## install the servers of others that some tests run, each in an environment of its own

# In another directory, because uv would apply this project's pins.
.upstreams/%/.installed: tests/upstreams/%.txt | setup
	@echo "Setting up .upstreams/$* (once) ..." >&2
	@uv="$$(command -v uv || echo $(CURDIR)/$(VENV)/bin/uv)"; export UV_PYTHON_DOWNLOADS=never; cd / && \
	"$$uv" venv --quiet --clear --python "$$(command -v $(BASE_PYTHON))" "$(CURDIR)/.upstreams/$*" && \
	"$$uv" pip install --quiet --python "$(CURDIR)/.upstreams/$*/bin/python" --requirement "$(CURDIR)/$<"
	@touch $@

clients: ## what tests need of npm: the released AG-UI clients, which read our streams, and axe-core, which reads our pages
	@for folder in tests/ag_ui_client tests/browser; do (cd $$folder && npm ci --silent --no-audit --no-fund) || exit 1; done

demo: setup ## the whole system on this machine: Postgres, an agent, the gateway, a chat page
	@$(PY) -m gateway demo $(ARGS)

test: setup ## the tests, real Postgres included
	@$(PY) -m pytest $(XDIST) $(ARGS)

test-all: setup ## everything, the long runs too
	@$(PY) -m pytest $(XDIST) --slow $(ARGS)

# The tests of what is pure: they need no server, and have to run every branch of it by themselves.
PURE := confirmation decide decode domain_values guard native_parser native_verdict projection quota resolution sequence snapshot states \
        strict_json text trace_context urls usage

coverage: setup ## every branch of gateway/domain and gateway/sse_parser is run by the tests of them alone
	@$(VENV)/bin/coverage run -m pytest -q $(PURE:%=tests/unit/test_%.py)
	@$(VENV)/bin/coverage report

fuzz: setup ## look for bytes that break the parser, for ten minutes (ARGS="--seconds 60 --keep")
	@$(PY) -c 'import atheris' 2>/dev/null || { rm -f $(INSTALLED); $(MAKE) --silent setup EXTRAS=$(EXTRAS),fuzz; }
	@$(PY) -m tests.fuzz $(ARGS)

check: setup ## formatter, linter, types, import contracts, migrations, docs
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-cache
	@$(VENV)/bin/squawk --config .squawk.toml sql/migrations/*.sql
	@$(VENV)/bin/hadolint deploy/image/Containerfile
	@$(VENV)/bin/shellcheck .ci/run deploy/image/try.sh deploy/compose/make-secrets.sh docs/model/check.sh
	@$(PY) tools/generate_docs.py --check
	@$(PY) tools/pins.py --check

format: setup ## format, and fix what the linter can fix
	@$(VENV)/bin/ruff check --fix --quiet . ; $(VENV)/bin/ruff format .

docs: setup ## write the generated pages under docs/
	@$(PY) tools/generate_docs.py

pins: setup ## resolve anew and write constraints.txt and pyproject's pins
	@$(PY) tools/pins.py

bench: setup ## the measurements of docs/performance.md (ratios; not part of CI)
	@$(PY) -m bench $(ARGS)
