# make help lists the targets. Variables stand after the target: make preview STACK=lab ARGS=--diff
STACK ?= prod
ARGS ?=
FULL ?=
YES ?=
COVER ?=
SEEDS ?= 1000
FIRST ?= 1
JOBS ?= 2
SEED ?=
ONLY ?=

# A variable that nothing reads would leave its default in place: STACK=prod beside a mistyped stack=lab.
READ := STACK ARGS FULL YES COVER SEEDS FIRST JOBS SEED ONLY OUT CLUSTER_UID FROM BEFORE DAYS NODE TAG
$(foreach each,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(each)))),$(if $(filter $(READ) MAKE% -%,$(each)),,$(error make reads no variable $(each); it reads $(READ)))))

# The installer looks at your PATH; everything after it sees the pinned tools first.
USER_PATH := $(PATH)
export PATH := $(CURDIR)/.toolchain/bin:$(CURDIR)/.venv/bin:$(PATH)
INSTALL := PATH="$(USER_PATH)" python3 toolchain/install.py
NODE_TOOLS := $(if $(filter no,$(NODE)),,$(if $(filter Linux,$(shell uname -s)),node))
BESIDE := certificates compiler monitoring oracle# what some tests need besides
PYTHON := .venv/bin/python
# With the bytecode of hundreds of modules kept, also where the shell says not to: without, each worker compiles them.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(PYTHON) -m pytest -q
SPREAD := --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# A worker more than cores: tests of real processes wait for them.
WAITING := -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) $(SPREAD)
# The tests of the goldens, schemas and pages
GENERATED := tests/unit/test_golden.py tests/unit/stacks/test_schema.py tests/unit/toolchain/test_pages.py \
	tests/integration/stacks/test_kueue_schema.py \
	tests/unit/policy/test_examples.py::test_the_page_is_what_the_rules_say
DAY := $(PYTEST) -n 0 -s -m day
COMPILE := .toolchain/bin/uv pip compile --quiet --universal --no-strip-extras --generate-hashes --no-header --no-emit-index-url --python-version 3.11
MKDOCS := NO_MKDOCS_2_WARNING=1 .toolchain/docs/bin/python -m mkdocs
ASK := $(if $(filter 1,$(YES)),--yes)# only YES=1 is a yes
FLAGS = $(if $(ARGS),-- $(value ARGS))

.DEFAULT_GOAL := help
.PHONY: help preview up render destroy refresh init preflight new-stack chart test unit integration simulate e2e demo day caps attempts soak check lint bench memory-report gpumem plugin pack wheel release-dry-run schema pictures docs docs-serve golden lock toolchain cluster-toolchain cluster cluster-stop clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

preview: toolchain ## Prove a stack: what changes, seats, a picture (BEFORE=old.yaml), the policy pack's verdict; FULL=1 lists all
up: toolchain ## Apply a stack to the current kubeconfig's cluster, after a preview and your yes (YES=1 in pipelines); FULL=1 lists all
render: toolchain ## Write a stack as plain manifests for Flux, Argo CD or kubectl: make render STACK=lab OUT=manifests
destroy: toolchain ## Remove a stack from the current kubeconfig's cluster, after a preview and your yes
refresh: toolchain ## Bring Pulumi's state up to date with the cluster; changes nothing in the cluster
chart: toolchain ## Print a stack's seating chart
preview up destroy refresh chart render:
	@$(if $(filter render,$@),$(if $(OUT),,$(error say where to write the manifests: make render STACK=$(STACK) OUT=manifests)))
	@$(PYTHON) -m stacks $@ --stack="$(STACK)" $(strip $(if $(filter preview up,$@),$(if $(FULL),--full)) $(if $(filter preview,$@),$(if $(BEFORE),--before="$$BEFORE")) $(if $(filter-out preview chart render,$@),$(ASK)) $(if $(filter render,$@),--out="$$OUT" $(if $(CLUSTER_UID),--cluster="$$CLUSTER_UID"))) $(FLAGS)
init: ## Write Pulumi.<STACK>.yaml from the kubeconfig's cluster, which it only reads; FROM=http://prometheus:9090
	@python3 -m gpumem init --stack="$(STACK)" $(if $(FROM),--from="$(FROM)") $(value ARGS)
preflight: toolchain ## Compare a stack with the kubeconfig's cluster before a rollout
	@$(PYTHON) -m gpumem.preflight --stack="$(STACK)" $(value ARGS)
new-stack: toolchain ## Write Pulumi.<STACK>.yaml from an example with one GPU: make new-stack STACK=lab
	@$(PYTHON) -m stacks new --stack="$(STACK)"

test: ## Run all tests, or some levels: ONLY="lint unit"; ends with each level's tests and time, and the slowest tests
	@$(if $(ONLY),:,$(INSTALL) preview lint languages docs browser cluster $(NODE_TOOLS) $(BESIDE))
	@PATH="$(USER_PATH)" COVER=1 python3 -m tests.levels $(ONLY)

# Coverage doubles what the tests cost (Python 3.11), so that the quick loop is without; make test and CI are with it.
unit: ## Run the tests that need no server, cluster or root; COVER=1 with their branch coverage, and its floor
	@$(INSTALL) python
	@$(PYTEST) -n auto --maxprocesses 4 --dist worksteal tests/unit $(if $(ARGS),$(value ARGS),$(if $(COVER),--cov --cov-report=))

integration: ## Run the tests of what the agents, previews and tools are shipped with, and 20 simulated plans
	@$(INSTALL) preview languages docs browser $(BESIDE)
	@$(PYTEST) $(WAITING) tests/simulation tests/integration $(value ARGS)

simulate: ## Simulate the whole system for SEEDS=n days (1000): what occurred how often, and what each failing seed did
	@$(INSTALL) python
	@$(PYTHON) -m tests.simulation.run --jobs $(JOBS) $(if $(SEED),--seed $(SEED),--first $(FIRST) --seeds $(SEEDS)) $(value ARGS)

# The lanes of tests/e2e/conftest.py, each on a cluster: they wait more than they compute. ARGS="-n 0": one.
e2e: ## Run the tests on clusters, in six lanes side by side
	@$(INSTALL) preview cluster $(NODE_TOOLS) $(BESIDE)
	@$(PYTEST) -n 6 --no-loadscope-reorder tests/e2e $(value ARGS)

demo: cluster-toolchain ## Play the residents' day in five minutes, without a GPU: a cluster, prod, who has the memory
	@$(PYTHON) -m toolchain.demo
day: cluster-toolchain ## Run make demo, and the residents' day on the local cluster's real node: twenty minutes
	@$(DAY) tests/e2e/prod/test_demo.py tests/e2e/prod/test_day.py $(value ARGS)
caps: ## Run NVIDIA's container toolkit on the local cluster's node before a model of the driver: minutes; prints its table
	@$(INSTALL) preview cluster $(NODE_TOOLS) $(BESIDE)
	@$(DAY) tests/e2e/prod/test_caps.py $(value ARGS)
attempts: ## Try to break what no command may ever do, with kills, renames and lost states: an hour; ARGS="base --first 9"
	@$(INSTALL) preview cluster $(NODE_TOOLS) $(BESIDE)
	@$(PYTHON) -m tests.e2e.attempts $(value ARGS)
soak: ## Run the searches at random in full: minutes, on all cores
	@$(INSTALL) preview $(BESIDE)
	@GPU_TENANCY_SOAK=1 $(PYTEST) -n auto --dist loadfile -o faulthandler_timeout=0 -m search tests/unit tests/integration/judge $(value ARGS)

check: lint ## Format, lint, types, what may import what, and whether generated files are fresh: quick, before a commit
	@$(PYTEST) -n auto $(SPREAD) tests/unit/contract tests/integration/contract $(GENERATED)
lint:
	@$(INSTALL) preview lint
	@.venv/bin/ruff format --check --quiet . && .venv/bin/ruff check --quiet .
	@$(PYTHON) -m mypy
	@.toolchain/bin/actionlint

bench: toolchain ## Measure previews, the policy pack, stranded seats, and on real API servers admission, bursts and the gate
	@$(PYTHON) -m tests.benchmarks $(value ARGS) && $(PYTHON) -m tests.benchmarks.stranding
	@$(INSTALL) cluster certificates && for each in admission bursts gate reports; do $(PYTHON) -m tests.benchmarks.$$each || exit; done

memory-report: toolchain ## Compare memory pools with a history of use: make memory-report FROM=http://prometheus:9090
	@$(PYTHON) -m gpumem advise --host-memory --stack "$(STACK)" $(if $(FROM),--from "$(FROM)") $(if $(DAYS),--days $(DAYS))
gpumem: ## Ask the current kubeconfig's cluster about GPU memory: make gpumem ARGS="who --pool t4" (docs/reference/gpumem.md)
	@python3 -m gpumem $(if $(ARGS),$(value ARGS),--help)

plugin: ## Write dist/kubectl-gpumem, one file for `kubectl gpumem`, which any Python 3.11 runs
	@python3 -m toolchain.plugin dist
pack: toolchain ## Write dist/gpu-tenancy-policy-VERSION: the policy pack alone, as a folder and as an archive
	@$(PYTHON) -m toolchain.pack dist
wheel: toolchain ## Write dist/gpu_tenancy-VERSION-py3-none-any.whl, the platform for your own program, and a template with it
	@$(PYTHON) -m toolchain.template dist
release-dry-run: toolchain docs ## Build the artifacts of a release in dist/release; TAG=v0.1.0 compares the tag with the version
	@$(INSTALL) languages && $(PYTHON) -m toolchain.release dist/release "$$TAG"
schema: toolchain ## Write the JSON schemas and the pages of docs/reference from the code
	@$(PYTHON) -m toolchain.kueue_crds && $(PYTHON) -m stacks schema && $(PYTHON) -m toolchain.pages
pictures: toolchain ## Draw the pictures of the docs that are older than their source
	@$(INSTALL) pictures && $(PYTHON) -m toolchain.pictures
docs: ## Build the docs as a site: build/site/index.html; it fails on a broken link
docs-serve: ## Show the docs on 127.0.0.1:8000 while you edit them
docs docs-serve:
	@$(INSTALL) python docs
	@$(MKDOCS) $(if $(filter docs,$@),build,serve --dev-addr 127.0.0.1:8000)
golden: ## Rewrite tests/golden, all objects of prod, the template and a stack with every setting: review the diff
	@$(INSTALL) python && $(PYTHON) -m tests.golden
lock: toolchain ## Write the two requirements*.lock from pyproject.toml
	@$(COMPILE) --group pyproject.toml:dev pyproject.toml --output-file requirements.lock
	@$(COMPILE) --group pyproject.toml:docs --constraint requirements.lock --output-file requirements-docs.lock

toolchain: ## Install what previews and tests need
	@$(INSTALL) preview
cluster-toolchain: ## Install what the cluster tests need as well: a control plane, kwok, Kueue, a node
	@$(INSTALL) preview cluster certificates $(NODE_TOOLS)
cluster: cluster-toolchain ## Start a throw-away cluster on this machine, with a real node; NODE=no without, for previews
	@$(PYTHON) -m toolchain.cluster start $(if $(filter no,$(NODE)),--no-node)
cluster-stop: toolchain ## End the throw-away cluster
	@$(PYTHON) -m toolchain.cluster stop

clean: ## Remove what was installed or cached in this checkout; stacks' state (.state) and the shared cache stay
	@[ ! -d .toolchain/clusters ] || $(PYTHON) -m toolchain.cluster stop
	@rm -rf .toolchain .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
