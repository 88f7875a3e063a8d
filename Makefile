# The two main commands: `make local` brings the dev environment up on this machine, `make test` checks the library.
# Both set everything up first, in .venv, on a machine with Python 3.11+ and make.

STACK ?= $(or $(TRN_STACK),dev)
LOCAL := $(if $(filter command line environment,$(origin STACK)),$(STACK),$(or $(TRN_STACK),local))
ifneq ($(and $(filter local,$(MAKECMDGOALS)),$(shell printf %s '$(LOCAL)' | tr -d 'a-z0-9-')),)
$(error a stack's name, '$(LOCAL)', must be lower-case letters, digits and dashes: buckets and Kubernetes objects have it)
endif
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for python in python3.14 python3.13 python3.12 python3.11 python3; do \
	command -v $$python >/dev/null 2>&1 && $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$python; break; }; done)

# Hundreds of short Python processes run in `make test`: without bytecode each would compile the library anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help local local-down plan test checked test-all environments test-pipelines slow mutants-sample local-programs programs lint types unit test-workloads torch policy test-engine test-engine-full test-upgrade mutants fuzz format docs site constraints golden check preview up destroy clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z -]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# On a new machine pip keeps one core busy for minutes and Go the others: they run side by side.
SIDE_BY_SIDE := $(MAKE) --no-print-directory --silent -j2

local: Pulumi.$(LOCAL).yaml ## Bring the stack up on this machine: a real Kubernetes, a simulated AWS
	@$(SIDE_BY_SIDE) local-programs $(VENV)/.local
	@$(BIN)/python -m trainium_eks.cli local up --stack $(LOCAL) $(ARGS)

local-down: $(VENV)/.local ## Stop what `make local` started and remove everything but the cache
	@$(BIN)/python -m trainium_eks.cli local down --stack $(LOCAL)

plan: $(VENV)/.runtime ## Show the whole plan of STACK (default dev); needs no AWS account and no Pulumi CLI
	@$(BIN)/python -m trainium_eks.cli plan --stack $(STACK) $(ARGS)

test: ## Run lint, type checks and the tests for every day (minutes)
	@$(SIDE_BY_SIDE) local-programs checked
	@$(BIN)/pytest -n 5 -m "not slow" $(ARGS)

# Beside the build of the local cloud's programs, which the tests need too.
checked: lint types

test-all: ## Run what `make test` leaves out: slow tests, trainings in PyTorch, a sample of the mutants
	@$(SIDE_BY_SIDE) programs environments
	@$(MAKE) --no-print-directory --keep-going -j1 slow test-workloads mutants-sample ARGS=

environments: $(VENV)/.dev $(VENV)/.site $(VENV)/.torchx $(VENV)/.torchx-nightly $(VENV)/.awscli torch

slow: $(VENV)/.dev $(VENV)/.torchx $(VENV)/.torchx-nightly $(VENV)/.awscli
	@$(BIN)/pytest -n 4 -m slow $(AGAIN) $(ARGS)

mutants-sample: $(VENV)/.dev
	@$(BIN)/python tests/mutate.py --sample 60 $(ARGS)

# Provide the local cloud's programs, once on a machine: those of every stack, and with those that the tests run besides.
# An `up` builds the Training Operator for a stack that has it.
local-programs: $(VENV)/.toolchain
	@$(BIN)/python -m trainium_eks.local.toolchain --try

programs: $(VENV)/.toolchain
	@$(BIN)/python -m trainium_eks.local.toolchain --try --prometheus

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python tests/line_budget.py
	@$(BIN)/python tests/plain_english.py
	@said=$$($(BIN)/lint-imports --no-cache --no-logo) || { echo "$$said"; exit 1; }

types: $(VENV)/.dev
	@$(BIN)/mypy

# On a machine that stalls for seconds, a slow test may fail for that alone: it is tried again, a few in a run, and the
# first failure is shown in any case (docs/decisions/0087).
AGAIN := --reruns 1 --reruns-delay 5 --max-suite-reruns 5 --rerun-show-tracebacks

# Its tests are skipped before `make test-all` has installed it.
unit slow: export TRN_TORCHX ?= $(CURDIR)/$(VENV)/torchx/bin/torchx:$(CURDIR)/$(VENV)/torchx-nightly/bin/torchx

unit: $(VENV)/.dev ## Run the tests that ARGS names, slow ones too: make unit ARGS=tests/unit/components
	@$(BIN)/pytest -n 2 $(ARGS)

test-workloads: $(VENV)/.local ## Run the tests of the trainings, in PyTorch (the first time 8 GB, minutes)
	@PYTHONPATH=. $(BIN)/python tests/torch_environment.py $(AGAIN) $(ARGS)

torch: $(VENV)/.local
	@PYTHONPATH=. $(BIN)/python tests/torch_environment.py --only-provide

policy: $(VENV)/.policy ## Set up the policy pack for `pulumi preview --policy-pack policy`

test-engine: $(VENV)/.dev $(VENV)/.policy ## Run the stack on a real Pulumi engine over the simulated AWS (needs the Pulumi CLI)
	@$(BIN)/pytest -n 0 tests/engine $(ARGS)

test-engine-full: $(VENV)/.dev ## The same, with one failure of each resource type (most of an hour)
	@$(BIN)/pytest -n 2 --dist=load -m engine_full tests/engine $(ARGS)

test-pipelines: $(VENV)/.dev $(VENV)/.airflow $(VENV)/.kubeflow $(VENV)/.optuna ## Run the pipelines of examples/pipelines over the local cloud: Airflow, Kubeflow, Optuna
	@$(MAKE) --no-print-directory local-programs
	@TRN_PIPELINES=$(CURDIR)/$(VENV) $(BIN)/pytest -n 0 tests/pipelines $(ARGS)

fuzz: $(VENV)/.dev ## Give each reader of files, answers and logs 10,000 damaged inputs, new ones each time (one to two hours)
	@TRN_FUZZ=$${TRN_FUZZ:-10000} $(BIN)/pytest -n 2 tests/unit/fuzz $(ARGS)

mutants: $(VENV)/.dev ## Check that the tests notice each fault of tests/mutants (almost half an hour)
	@$(BIN)/python tests/mutate.py $(ARGS)

format: $(VENV)/.dev ## Format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/.runtime ## Regenerate Pulumi.yaml's config, docs/config.md, docs/rules.md, docs/components, docs/bootstrap.yaml, …
	@PYTHONPATH=. $(BIN)/python docs/typed_dicts.py
	@PYTHONPATH=. $(BIN)/python docs/provider_schema.py
	@PYTHONPATH=. $(BIN)/python docs/generate.py

site: $(VENV)/.site ## Build the pages and the API as a web site in build/site; its search needs a server, which the command names
	@$(VENV)/site/bin/python docs/build_site.py $(ARGS)

constraints: $(VENV)/.dev ## Write constraints.txt anew: the newest versions that the requirements allow
	@$(BIN)/uv pip compile --quiet --universal --upgrade --python-version 3.11 --no-emit-index-url \
		--custom-compile-command "make constraints" --output-file constraints.txt requirements/dev.txt

golden: $(VENV)/.runtime ## Rewrite the golden plans (URNs, inputs that force a replacement, edges, options) and comments; show what changed
	@PYTHONPATH=. $(BIN)/python tests/golden.py
	@PYTHONPATH=.:tests $(BIN)/python tests/golden_components.py
	@PYTHONPATH=.:tests $(BIN)/python tests/review_cases.py
	@PYTHONPATH=.:tests $(BIN)/python tests/plan_pages.py

check: $(VENV)/.local ## Ask AWS whether an `up` of STACK would get what it needs; reads only
	@$(BIN)/python -m trainium_eks.cli check --stack $(STACK) $(ARGS)

up: $(VENV)/.local
preview up destroy: $(VENV)/.runtime ## Run the real `pulumi` on STACK, after checking the tools it needs
	@$(BIN)/python -m trainium_eks.cli deploy $@ --stack $(STACK) $(if $(ARGS),-- $(ARGS))

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# An interrupted set-up leaves no stamp, so the next run repeats it.
$(VENV)/.runtime: requirements.txt constraints.txt | $(VENV)/.created
	@echo "Installing what the program needs into $(VENV) (about a minute, 350 MB, once)"
	@$(INSTALL) -r requirements.txt
	@touch $@

# The little that providing the programs needs comes first, so that the rest is installed beside it.
$(VENV)/.toolchain: requirements.txt requirements/local.txt | $(VENV)/.created
	@$(INSTALL) $$(grep -hE '^(filelock|platformdirs)' $^)
	@touch $@

$(VENV)/.local: requirements/local.txt requirements.txt constraints.txt | $(VENV)/.created $(VENV)/.toolchain
	@echo "Installing what the program and the local cloud need into $(VENV) (about a minute, 380 MB, once)"
	@$(INSTALL) -r requirements/local.txt
	@touch $@ $(VENV)/.runtime

$(VENV)/.dev: requirements/dev.txt requirements/local.txt requirements.txt constraints.txt | $(VENV)/.created $(VENV)/.toolchain
	@echo "Installing what the tests need into $(VENV) (about a minute, once)"
	@$(INSTALL) -r requirements/dev.txt
	@touch $@ $(VENV)/.local $(VENV)/.runtime

# TorchX and its nightly cannot be installed side by side, nor with what the library needs. The site's tools pin theirs,
# and so do the pipelines' and the AWS CLI.
OWN := site awscli torchx torchx-nightly airflow kubeflow optuna
$(OWN:%=$(VENV)/.%): $(VENV)/.%: requirements/%.txt | $(VENV)/.created
	@echo "Installing what $* needs into $(VENV)/$* (up to two minutes, 500 MB, once)"
	@$(BIN)/python -m venv --clear $(VENV)/$*
	@$(VENV)/$*/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Pulumi's policy SDK wants another protobuf than the providers' SDKs.
$(VENV)/.policy: policy/requirements.txt | $(VENV)/.created
	@echo "Installing what the policy pack needs into $(VENV)/policy (half a minute, 100 MB, once)"
	@$(BIN)/python -m venv --clear $(VENV)/policy
	@$(VENV)/policy/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed (Debian and Ubuntu: apt-get install python3 python3-venv)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) has no venv module (Debian and Ubuntu: apt-get install $$($(PYTHON) -c 'import sys; print(f"python{sys.version_info.major}.{sys.version_info.minor}-venv")'))"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m compileall -q trainium_eks components || true # pip compiles the packages; a checkout may be read-only
	@touch $@
