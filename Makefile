# One command each for what one does with a checkout. `make` lists them; .ci/run runs them all.

PYTHON ?= python3
BIN := .venv/bin
BIN38 := .venv-py38check/bin
BINLOW := .venv-lowest/bin
BINDOCS := .venv-docs/bin
PAGES := *.md LICENSE docs tests/simulation/README.md vscode/README.md
JOBS ?= 4
BESIDE := jupyter-collaboration jupyter_server_documents jupyter_server_nbmodel notebook
# What runs on every system: all but the agent and the demo.
ELSEWHERE := --config-file checks/mypy-elsewhere.ini
LABEXTENSION := jupyter_gpu_kernel/labextension/package.json
# CONSTRAINT=--constraint=.ci/constraints.txt installs the versions that the public workflow has, not the newest.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check $(CONSTRAINT)
LINKED := .venv/share/jupyter/labextensions/jupyter-gpu-kernel

# Without compiled modules, each process that the tests start needs twice the time for its imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv sshd programs test test-full test-spare test-browser-side test-labextension test-vscode test-lowest test-collaboration check labextension vscode link pictures simulate mutants bench demo wheel version docs clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-14s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: .venv/installed  ## the virtual environment .venv, with everything that tests and checks need

$(BIN)/python:
	@.ci/progress "making the environment .venv" $(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | $(BIN)/python
	@rm -rf $(LINKED)  # pip would write into the checkout through the link
	@.ci/progress "installing into .venv what tests and checks need" $(INSTALL) --editable '.[test,dev]'
	@touch $@

# What the demo needs and no more, so that a first demo begins soon. Not compiled: that happens at the first import.
.venv/demo: pyproject.toml | $(BIN)/python
	@test .venv/installed -nt pyproject.toml || \
	    .ci/progress "installing into .venv what the demo needs" $(INSTALL) --no-compile --editable .
	@touch $@

# The last mypy that checks code for Python 3.8 needs an environment of its own.
.venv-py38check/installed: Makefile
	test -x $(BIN38)/python || $(PYTHON) -m venv .venv-py38check
	$(BIN38)/python -m pip install --quiet --disable-pip-version-check mypy==1.14.1
	@touch $@

# uv chooses the lowest versions; what they need themselves is the newest that fits. Made anew after each change.
.venv-lowest/installed: pyproject.toml
	$(PYTHON) -m venv --clear .venv-lowest
	$(BINLOW)/python -m pip install --quiet --disable-pip-version-check uv
	$(BINLOW)/uv pip install --quiet --python $(BINLOW)/python --resolution lowest-direct --editable '.[test,demo]'
	@touch $@

sshd:  # the tests start their own sshd, as the user who runs them, on loopback
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin:/sbin"; \
	command -v sshd >/dev/null && exit 0; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo="sudo -n"; \
	if command -v apt-get >/dev/null && $$sudo true 2>/dev/null; then \
	    echo "no sshd here: installing Debian's openssh-server" && $$sudo apt-get update -qq && \
	    $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends openssh-server; \
	else \
	    echo "The tests need sshd: install your system's OpenSSH server (Debian: apt-get install openssh-server)." >&2; \
	    exit 1; \
	fi

# Tests start their own KDC, token, proxies and Slurm, and are skipped where a program is missing.
programs:
	@.ci/packages krb5kdc:krb5-kdc kadmin.local:krb5-admin-server kinit:krb5-user softhsm2-util:softhsm2 \
	    nc:netcat-openbsd munged:munge sbatch:slurm-client slurmctld:slurmctld slurmd:slurmd

test: .venv/installed sshd programs test-browser-side  ## the tests that every change runs, JOBS files at a time
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile -m "not full and not pictures" $(ARGS)

test-full: .venv/installed sshd programs test-browser-side  ## all tests (ARGS="tests/wire -k cut" for some)
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile $(ARGS)

labextension/node_modules/.package-lock.json: labextension/package-lock.json
	cd labextension && npm ci --ignore-scripts --no-audit --no-fund

# The tests in a browser, which pytest runs, need the extension built and linked.
test-browser-side:  ## the unit tests of labextension/ and vscode/ (needs Node)
	@if command -v npm >/dev/null; then $(MAKE) --silent test-labextension test-vscode; \
	else echo "no npm here: the unit tests of labextension/ and vscode/ are left out" >&2; fi

test-labextension: labextension/node_modules/.package-lock.json $(LABEXTENSION) link
	cd labextension && npm test

# What comes with the packages is not executed when they are installed.
vscode/node_modules/.package-lock.json: vscode/package-lock.json
	cd vscode && npm ci --ignore-scripts --no-audit --no-fund

test-vscode: vscode/node_modules/.package-lock.json
	cd vscode && npm test

test-spare: .venv/installed sshd  ## tests of kernels, keepers and the guard with every kernel forked from a spare interpreter
	JUPYTER_GPU_KERNEL_SPARE=wait $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile tests/agent tests/hub $(ARGS)

# Old libraries warn about themselves, which is not our business here.
test-lowest: .venv-lowest/installed sshd programs  ## all tests with the lowest versions that pyproject.toml allows
	$(BINLOW)/python -m pytest --numprocesses $(JOBS) --dist loadfile -W default::DeprecationWarning $(ARGS)

# Extensions that are large, or change often, each in an environment of its own.
.venv-beside/%/installed: .venv/installed tests/programs/environment_beside.py
	$(BIN)/python tests/programs/environment_beside.py $(@D) $*
	@touch $@

test-collaboration: $(BESIDE:%=.venv-beside/%/installed) sshd  ## JupyterLab beside extensions that share notebooks or execute cells; Notebook 7
	JUPYTER_GPU_KERNEL_BESIDE=$(CURDIR)/.venv-beside $(BIN)/python -m pytest tests/browser/test_beside.py tests/browser/test_notebook7.py $(ARGS)

check: .venv/installed .venv-py38check/installed  ## style, types (also as Python 3.8), import contracts, lines of code, documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	for system in win32 darwin; do $(BIN)/mypy --platform $$system $(ELSEWHERE) || exit; done
	$(BIN38)/mypy --config-file= --strict --python-version 3.8 --ignore-missing-imports \
	    --follow-imports=silent --allow-subclassing-any --allow-untyped-decorators --no-warn-return-any --no-warn-unused-ignores \
	    -p jupyter_gpu_kernel.wire -p jupyter_gpu_kernel.agent
	$(BIN)/lint-imports --no-logo
	$(BIN)/python checks/lines_of_code.py
	$(BIN)/python -m pytest --quiet checks

labextension: .venv/installed labextension/node_modules/.package-lock.json  ## build the JupyterLab side (needs Node), and link it into .venv
	cd labextension && npm run build
	@$(MAKE) --silent link

vscode: vscode/node_modules/.package-lock.json  ## build the extension for VS Code (needs Node); `vscode install` installs it
	cd vscode && npm run package

link:  # as `pip install` would copy it, but what is built next is used at once
	@mkdir -p $(dir $(LINKED))
	@rm -rf $(LINKED)
	@ln -s $(CURDIR)/jupyter_gpu_kernel/labextension $(LINKED)

pictures: labextension sshd  ## docs/pictures/ anew, from real runs (needs Node, Chromium and root)
	$(BIN)/python -m pytest -m pictures tests/browser/test_pictures.py

simulate: .venv/installed  ## simulated lives of kernels (ARGS="--seeds 0-9999"; ARGS="--seed 7 --trace" replays one)
	$(BIN)/python -m tests.simulation $(ARGS)

mutants: .venv/installed  ## does the simulation find planted bugs? (ARGS="--only NAME --seeds 1000")
	$(BIN)/python -m tests.simulation.mutants $(ARGS)

bench: .venv/installed sshd  ## measure this beside other ways, on a practice cluster (ARGS="--quick --only execute")
	$(BIN)/python benchmarks/bench $(ARGS)

# Without Node, or where this fails, the demo opens JupyterLab all the same, and says what is missing.
$(LABEXTENSION): $(shell find labextension/*.json labextension/src labextension/style labextension/schema -type f 2>/dev/null)
	-@if command -v npm >/dev/null; then $(MAKE) --silent labextension/node_modules/.package-lock.json && cd labextension && npm run build; \
	else echo "no npm here to build the JupyterLab extension (Node.js 20.19 or newer brings npm)" >&2; fi

demo: $(if $(LAB),.venv/installed $(LABEXTENSION),.venv/demo)  ## a practice cluster on this machine, and a kernel on it (LAB=1: in JupyterLab)
	@$(BIN)/jupyter gpu-kernel demo $(if $(LAB),--lab)

wheel: .venv/installed  ## dist/*.whl, with the extensions for JupyterLab and VS Code built in (needs Node)
	rm -rf dist
	$(BIN)/python -m build --wheel

.venv-docs/installed: .ci/requirements-docs.txt
	@test -x $(BINDOCS)/python || .ci/progress "making the environment .venv-docs" $(PYTHON) -m venv .venv-docs
	@.ci/progress "installing into .venv-docs what the site needs" $(BINDOCS)/python -m pip install \
	    --disable-pip-version-check --require-hashes --requirement .ci/requirements-docs.txt
	@touch $@

version:  ## write the version of jupyter_gpu_kernel/__init__.py into the other files that name it
	@$(PYTHON) .ci/version.py

docs: .venv-docs/installed  ## the documentation as a site, in build/site; a link that leads nowhere is an error
	rm -rf build/pages && mkdir -p build/pages
	tar c $(PAGES) | tar x -C build/pages
	NO_MKDOCS_2_WARNING=1 $(BINDOCS)/mkdocs --quiet build --strict

clean:  ## remove what was built, and caches; the virtual environments stay
	rm -rf dist build jupyter_gpu_kernel/labextension labextension/lib labextension/node_modules
	rm -rf jupyter_gpu_kernel/vscode_extension vscode/dist vscode/lib vscode/node_modules
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find jupyter_gpu_kernel tests checks -name __pycache__ -prune -exec rm -rf {} +
