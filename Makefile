# Everything that is done here, by one name each; `make` alone lists them.
# Needs make and Python 3.11 or newer. All else goes into .venv (GNU make 3.81, as macOS has it, is enough).

VENV := .venv
STAMP := $(VENV)/.installed
SCRIPTS := $(wildcard notebooks/*.py)
NOTEBOOKS := $(wildcard notebooks/*.ipynb)
SOLUTIONS := $(wildcard solutions/*.py)
# Tests that come one by one, since a lesson measures and a browser follows what is measured; all others run side by side.
ONE_BY_ONE := tests/browser tests/notebooks
INSTALL = $(VENV)/bin/python -m pip install --constraint requirements.lock

# Students' Lab, in .venv only: without the teacher's nbgrader menu, and without the question about Jupyter's news.
LAB_SETTINGS := $(VENV)/share/jupyter/lab/settings/overrides.json
QUIET_LAB := {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}

# Runs a command as if .venv were activated.
RUN := env PATH="$(CURDIR)/$(VENV)/bin:$$PATH"

# The first Python that is new enough and can make a virtual environment.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
    $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && \
    echo $$python && break; done)

define NO_PYTHON
No Python was found that is 3.11 or newer and can make a virtual environment (modules venv and ensurepip).
  Debian, Ubuntu:  sudo apt-get install python3 python3-venv
  Fedora:          sudo dnf install python3
  macOS:           brew install python
  elsewhere:       make setup PYTHON=/path/to/python3
endef
export NO_PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup lab test check notebooks screenshots exercises bench bench-peers lock

help:  ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## install everything into .venv (again only when what is needed has changed)

lab: setup  ## open JupyterLab on the first lesson
	$(RUN) jupyter lab --LabApp.default_url=/lab/tree/notebooks/01_one_gpu_to_many.ipynb \
	    $(if $(filter 0,$(shell id -u)),--allow-root)  # Jupyter asks for this when it is root

test: setup  ## run all tests, and every cell of the lessons
	$(RUN) pytest --numprocesses=3 --dist=worksteal tests $(addprefix --ignore=,$(ONE_BY_ONE))
	$(RUN) pytest $(ONE_BY_ONE) $(if $(NOTEBOOKS),--nbval-lax --nbval-current-env --nbval-cell-timeout=300 $(NOTEBOOKS))

check: setup  ## lint, formatting, types, who imports whom, and files that must agree
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy
	$(RUN) lint-imports --no-logo
	$(RUN) pytest --quiet tests/test_project.py

notebooks: setup  ## bring each lesson and its script in line, then execute the lessons
	$(RUN) ruff format notebooks
	$(RUN) jupytext --set-formats ipynb,py:percent --set-kernel python3 --sync $(SCRIPTS)
	$(RUN) jupyter nbconvert --execute --to notebook --inplace \
	    --ExecutePreprocessor.record_timing=False --ExecutePreprocessor.store_widget_state=False $(SCRIPTS:.py=.ipynb)

screenshots: setup  ## take the pictures in docs/ anew, by the tests that drive what they show
	$(RUN) SCREENSHOTS="$(CURDIR)/docs" pytest tests/browser -k "first_lesson or keyboard"

exercises: setup  ## bring each solution and its script in line, then make the exercises from the solutions
	$(RUN) ruff format solutions
	$(RUN) jupytext --set-formats ipynb,py:percent --set-kernel python3 --sync $(SOLUTIONS)
	$(RUN) nbstripout $(SOLUTIONS:.py=.ipynb)
	$(RUN) python -m course_lib.grading.release

bench: setup  ## measure, print the table, write it as JSON
	$(RUN) python -m benchmarks

bench-peers: setup  ## the same, beside the tools that people would use instead
	$(INSTALL) accelerate lightning netcl pyopencl pocl-binary-distribution
	$(RUN) python -m benchmarks

lock:  ## make requirements.lock anew from the newest releases that pyproject.toml allows
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install torch==2.13.0 --editable '.[dev]'
	sed -n '/^#/p' requirements.lock > build/requirements.lock
	build/lock/bin/python -m pip freeze --all --exclude-editable --exclude pip \
	    | sed 's/+.*//' | grep -viE '^(nvidia|cuda|triton)' >> build/requirements.lock
	mv build/requirements.lock requirements.lock

$(STAMP): pyproject.toml requirements.lock course_lib/__init__.py
	@$(VENV)/bin/python -c '' 2>/dev/null || { \
	    test -n "$(PYTHON)" || { echo "$$NO_PYTHON" >&2; exit 1; }; \
	    echo "Making $(VENV) with $$($(PYTHON) --version)"; \
	    $(PYTHON) -m venv --clear $(VENV); }
	$(INSTALL) --editable '.[dev]'
	$(RUN) jupyter labextension disable --level=sys_prefix @jupyter/nbgrader
	@mkdir -p $(dir $(LAB_SETTINGS)) && echo '$(QUIET_LAB)' > $(LAB_SETTINGS)
	@touch $@
