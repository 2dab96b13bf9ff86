# make help lists what there is. Every variable below can be given: make preview STACK=lab ARGS=--diff
STACK ?= prod
ARGS ?=
FULL ?=
COVER ?=
YES ?=
# Of make simulate: how many days, from which seed on, on how many cores; SEED=17 shows one.
SEEDS ?= 1000
FIRST ?= 1
JOBS ?= 2
SEED ?=

# What a person types stays as it was typed: make expands nothing in it, and nothing runs before stacks/typed.py read it.
# `override`: what judges is nobody's to replace on the command line.
override TYPED := STACK ARGS FULL COVER YES SEEDS FIRST JOBS SEED TRACE FROM DAYS
override ASSIGNED := $(foreach name,$(.VARIABLES),$(if $(findstring command line,$(origin $(name))),$(name)))
$(foreach name,$(sort $(TYPED) $(ASSIGNED)),$(if $(filter file undefined,$(origin $(name))),,\
	$(eval override $(name) := $$(value $(name)))))
$(foreach name,$(filter-out $(TYPED),$(ASSIGNED)),$(eval export $(name)))
override SHELL := /bin/sh
override .SHELLFLAGS := -c
override quoted = '$(subst ','\'',$(1))'
override FLAGS := $(filter-out --% -%=%,$(firstword -$(MAKEFLAGS)))
$(if $(findstring i,$(FLAGS)),$(error make -i goes on after a refusal; leave it out))
$(if $(findstring t,$(FLAGS)),$(error make -t judges nothing; leave it out))
ifneq (,$(filter-out help clean,$(MAKECMDGOALS)))
ifneq (ok,$(shell python3 -m stacks.typed $(foreach goal,$(MAKECMDGOALS),$(call quoted,$(goal))) -- \
	$(foreach name,$(TYPED),$(call quoted,$(name)=$($(name)))) -- $(foreach name,$(ASSIGNED),$(call quoted,$(name)))))
$(error nothing was run)
endif
endif

# Where Pulumi keeps stacks: a local folder, or any backend you export (s3://..., https://api.pulumi.com).
PULUMI_BACKEND_URL ?= file://$(CURDIR)/.state
# The stacks hold no secrets, so their passphrase is empty unless you set one, here or in a file.
ifndef PULUMI_CONFIG_PASSPHRASE_FILE
PULUMI_CONFIG_PASSPHRASE ?=
export PULUMI_CONFIG_PASSPHRASE
endif
PULUMI_HOME ?= $(CURDIR)/.toolchain/pulumi-home
PULUMI_SKIP_UPDATE_CHECK ?= true
PULUMI_ERROR_OUTPUT_STRING ?= 1
# Only the pinned provider, also where another one is on PATH.
PULUMI_IGNORE_AMBIENT_PLUGINS ?= true
export PULUMI_BACKEND_URL PULUMI_HOME PULUMI_SKIP_UPDATE_CHECK PULUMI_ERROR_OUTPUT_STRING PULUMI_IGNORE_AMBIENT_PLUGINS YES

# The installer looks at your PATH; everything after it sees the pinned tools first.
override USER_PATH := $(PATH)
export PATH := $(CURDIR)/.toolchain/bin:$(CURDIR)/.venv/bin:$(PATH)
override INSTALL := PATH="$(USER_PATH)" python3 toolchain/install.py
# The tests that compare with Kubernetes' own code need Go to build it; without Go they say so and are skipped.
ORACLE := $(if $(shell PATH="$(USER_PATH)" command -v go),oracle)
NODE := $(if $(filter Linux,$(shell uname -s)),node)
override PYTHON := .venv/bin/python
override PULUMI := .toolchain/bin/pulumi
# With the bytecode of hundreds of modules kept, also where the shell says not to: without, each worker compiles them.
override PYTEST := env -u PYTHONDONTWRITEBYTECODE $(PYTHON) -m pytest -q
SPREAD := --maxprocesses 4 --dist loadfile --no-loadscope-reorder
PARALLEL := -n auto $(SPREAD)
# A worker more than cores: tests of real processes wait for them.
WAITING := -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) $(SPREAD)
# Of branches too; not of a part of the tests, which ARGS may choose.
COVERAGE := --cov --cov-report=
override GATED := --policy-pack policy --suppress-outputs
override PREVIEW = $(PYTHON) -m stacks preview --stack '$(STACK)' $(if $(FULL),--full) -- $(GATED) $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help preview up destroy refresh recover new-stack chart settings stack test unit integration simulate e2e demo day migrate caps soak check lint bench bench-scale bench-packing memory-report gpumem plugin pack wheel schema lock toolchain cluster-toolchain cluster cluster-stop clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

preview: settings stack ## Prove a stack: what changes, seating chart, the policy pack's verdict; FULL=1 lists all
	@$(PREVIEW)

# `up` previews once more under the pack before it changes anything, so what you confirmed is judged again as it is then.
# Not --skip-preview: the pack sees the whole graph last, which in an update is after the cluster has changed. Not --plan:
# it is experimental and stops halfway, at the first value that only the real cluster knows (a Namespace's uid).
up: settings recover ## Apply a stack to the current kubeconfig's cluster, after a preview and your yes
	@$(PYTHON) -m stacks cluster >/dev/null
	@$(PREVIEW)
	@toolchain/confirm.sh 'Apply $(STACK)'
	@$(PULUMI) up --stack '$(STACK)' $(GATED) --suppress-progress --yes $(ARGS)

destroy: recover ## Remove a stack from the current kubeconfig's cluster, after a preview and your yes
	@$(PYTHON) -m stacks cluster >/dev/null
	@$(PULUMI) destroy --stack '$(STACK)' --preview-only --suppress-progress $(ARGS)
	@toolchain/confirm.sh 'Destroy $(STACK)'
	@$(PULUMI) destroy --stack '$(STACK)' --skip-preview --yes $(ARGS)

refresh: recover ## Bring Pulumi's state up to date with the cluster; changes nothing in the cluster
	@$(PULUMI) refresh --stack '$(STACK)' $(if $(YES),--yes) $(ARGS)

recover: stack ## Put a stack right after a run that was killed; up, destroy and refresh do it by themselves
	@$(PYTHON) -m toolchain.recovery '$(STACK)'

new-stack: toolchain ## Write Pulumi.<STACK>.yaml from an example with one GPU: make new-stack STACK=lab
	$(if $(filter file,$(origin STACK)),$(error give it a name: make new-stack STACK=lab))
	@$(PYTHON) -m stacks new --stack '$(STACK)'
	@$(MAKE) --no-print-directory stack

chart: toolchain
	@$(PYTHON) -m stacks chart --stack '$(STACK)'

settings: toolchain
	@$(PYTHON) -m stacks chart --stack '$(STACK)' >/dev/null

stack: toolchain
	@mkdir -p .state
	@toolchain/ensure-stack.sh '$(STACK)'

test: ## Run all tests: lint, unit, integration and e2e, one after the other, and how long each took
	@PATH="$(USER_PATH)" COVER=1 python3 -m tests.levels $(MAKE) lint unit integration e2e

# Coverage doubles what the tests cost (Python 3.11), so that the quick loop is without; make test and CI are with it.
unit: ## Run the tests that need no server, cluster or root; COVER=1 with their branch coverage, and its floor
	@$(INSTALL) python
	@$(PYTEST) $(PARALLEL) tests/unit $(if $(ARGS),$(ARGS),$(if $(COVER),$(COVERAGE)))

integration: ## Run the tests of what the agents, previews and tools are shipped with, and 100 simulated days
	@$(INSTALL) preview languages $(ORACLE)
	@$(PYTEST) $(WAITING) tests/simulation tests/integration $(ARGS)

simulate: ## Simulate the whole system for SEEDS=n days (1000): coverage, days a second, what each failing seed did
	@$(INSTALL) python
	@$(PYTHON) -m tests.simulation.run --jobs $(JOBS) $(if $(SEED),--seed $(SEED),--first $(FIRST) --seeds $(SEEDS)) $(ARGS)

# The lanes of tests/e2e/conftest.py, each on a cluster: they wait more than they compute. ARGS="-n 0": one.
e2e: ## Run the tests on clusters, in five lanes side by side
	@$(INSTALL) preview cluster $(NODE)
	@$(PYTEST) -n 5 tests/e2e $(ARGS)

demo: cluster-toolchain ## Play the residents' day in five minutes, without a GPU: a cluster, prod, who has the memory
	@$(PYTHON) -m toolchain.demo

day: ## Run make demo, and the residents' day on the local cluster's real node: twenty minutes; prints its table
	@$(INSTALL) preview cluster $(NODE)
	@$(PYTEST) -n 0 -s -m day tests/e2e/prod/test_demo.py tests/e2e/prod/test_day.py $(ARGS)

migrate: ## Move nodes from the extender to claims and back, and kill who decides meanwhile: a quarter of an hour; prints its log
	@$(INSTALL) preview cluster $(NODE)
	@$(PYTEST) -n 0 -s -m day -o faulthandler_timeout=1800 tests/e2e/test_move.py $(ARGS)

caps: ## Run NVIDIA's container toolkit on the local cluster's node before a model of the driver: minutes; prints its table
	@$(INSTALL) preview cluster $(NODE) oracle
	@$(PYTEST) -n 0 -s -m day tests/e2e/prod/test_caps.py $(ARGS)

soak: ## Run the searches at random in full: minutes, on all cores
	@$(INSTALL) preview $(ORACLE)
	@GPU_TENANCY_SOAK=1 $(PYTEST) -n auto --dist loadfile -m search tests/unit tests/integration/judge $(ARGS)

check: lint ## Format, lint, types, and the contracts between the parts: quick, before a commit
	@$(PYTEST) tests/unit/contract tests/integration/contract

lint:
	@$(INSTALL) preview lint
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/ruff check --quiet .
	@$(PYTHON) -m mypy
	@.toolchain/bin/actionlint

bench: toolchain ## Measure previews and the policy pack, and what settings, chart and rules take of 1,000 nodes
	@$(PYTHON) -m tests.benchmarks $(ARGS)
	@$(PYTHON) -m tests.benchmarks.judged

bench-scale: cluster-toolchain ## Measure prod with 200 nodes and 100 tenants on local clusters, against a tenth of it
	@$(PYTHON) -m tests.benchmarks.load $(ARGS)
	@$(PYTHON) -m tests.benchmarks.scale $(ARGS)

bench-packing: toolchain ## Measure how well placement packs, on the openb trace: TRACE=folder (docs/benchmarks.md)
	@$(PYTHON) -m tests.benchmarks.packing $(if $(TRACE),$(call quoted,$(TRACE))) $(ARGS)

memory-report: toolchain ## Compare memory pools with a history of use: make memory-report FROM=http://prometheus:9090
	$(if $(FROM),,$(error say where the history is: FROM=http://prometheus:9090, or FROM=usage.csv))
	@$(PYTHON) -m gpumem advise --host-memory --stack '$(STACK)' --from $(call quoted,$(FROM)) $(if $(DAYS),--days $(DAYS))

gpumem: ## Ask the current kubeconfig's cluster about GPU memory: make gpumem ARGS="who --pool t4" (docs/gpumem.md)
	@python3 -m gpumem $(if $(ARGS),$(ARGS),--help)

plugin: ## Write dist/kubectl-gpumem, one file for `kubectl gpumem`, which any Python 3.11 runs
	@python3 -m toolchain.plugin dist

pack: toolchain ## Write dist/gpu-tenancy-policy-VERSION: the policy pack alone, as a folder and as an archive
	@$(PYTHON) -m toolchain.pack dist

wheel: toolchain ## Write dist/gpu_tenancy-VERSION-py3-none-any.whl: the platform for a program of one's own
	@$(PYTHON) -m toolchain.wheel dist

schema: toolchain ## Write docs/*.schema.json from the settings, and the tables of docs/package from the components
	@$(PYTHON) -m toolchain.pages
	@$(PYTHON) -m stacks schema > docs/config.schema.json.new
	@mv docs/config.schema.json.new docs/config.schema.json
	@$(PYTHON) -m stacks schema --parts > docs/parts.schema.json.new
	@mv docs/parts.schema.json.new docs/parts.schema.json

override COMPILE := .toolchain/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url \
	--python-version 3.11
lock: toolchain ## Write requirements.lock and requirements-plot.lock from pyproject.toml
	@$(COMPILE) --group pyproject.toml:dev pyproject.toml --output-file requirements.lock
	@$(COMPILE) --group pyproject.toml:plot --constraint requirements.lock --output-file requirements-plot.lock

toolchain: ## Install what previews and tests need
	@$(INSTALL) preview

cluster-toolchain: ## Install what the cluster tests need as well: a control plane, kwok, Kueue, a node
	@$(INSTALL) preview cluster $(NODE)

cluster: cluster-toolchain ## Start a throw-away cluster on this machine, with a real node where it can host one
	@$(PYTHON) -m toolchain.cluster start

cluster-stop: toolchain ## End the throw-away cluster
	@$(PYTHON) -m toolchain.cluster stop

clean: ## Remove what was installed or cached in this checkout; stacks' state (.state) and the shared cache stay
	@[ ! -d .toolchain/clusters ] || $(PYTHON) -m toolchain.cluster stop
	@rm -rf .toolchain .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
