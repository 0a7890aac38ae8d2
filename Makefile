# Each target does its own set-up. `make demo` and `make test` are the two a newcomer needs.
PYTHON ?= python3
BIN := .venv/bin
.DEFAULT_GOAL := help
# Where the environment forbids it to keep what it compiled, Python compiles all of us again in each process of a run.
export PYTHONDONTWRITEBYTECODE :=
.PHONY: help demo lab hub docs test run-tests check check-all check-lint check-types check-imports check-clang check-headers check-labextension check-house check-releases soak test-torch test-binder bench-gateway bench-runtime bench-density bench-plan bench-compute bench-hook bench-swap bench-lab bench-load bench-usage bench-door bench-kubernetes bench-owner bench-gpu test-cluster test-gpu screenshot labextension release-check readme-check clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: ## Three real notebooks share one GPU: memory limits, out-of-memory, kill -9 (exits 0 when all held)
	@$(PYTHON) tools/setup.py demo
	@$(BIN)/aliquot demo

# Jupyter writes into what it opens: a copy to work on, made once, leaves the checkout clean.
notebooks/%.ipynb:
	@mkdir -p notebooks && cp examples/$*.ipynb $@

lab: notebooks/quickstart.ipynb ## JupyterLab with Aliquot, also as root; ARGS go to it
	@$(PYTHON) tools/setup.py lab
	@$(BIN)/aliquot lab $(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS)

hub: ## JupyterHub with two users, two teams and limits on the software GPU (needs Node); ARGS=--check tries it, and ends
	@$(PYTHON) tools/setup.py hub
	@$(BIN)/python examples/jupyterhub/start.py $(ARGS)

docs: ## The documentation as a site, in build/site; ARGS=--check-links asks each address outside, too
	@$(PYTHON) tools/setup.py docs
	@$(BIN)/python tools/docs_site.py $(ARGS)

test: ## All that CI runs: the checks, and every test (no GPU needed); WORKERS is how many files run at once
	@$(PYTHON) tools/setup.py test
	@$(MAKE) --no-print-directory --jobs=3 check-labextension check-house run-tests check-all

# The compilers and the types are checked while the tests run, which read nothing of them.
run-tests: check-lint check-imports check-house
	@# They wait more than they compute: more workers than the two cores that CI has.
	@env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL $(BIN)/python tools/run_tests.py -n $(or $(WORKERS),4) --dist loadgroup --no-loadscope-reorder $(CHECKED:%=--ignore=%) tests

# Tests that are checks: `make test` runs them once.
CHECKED := tests/house tests/gpu_hook/hook/test_binaries.py

check: ## Lint, types, import contracts, house rules, the C code under a second compiler, entry points of CUDA's releases, oldest glibc
	@$(PYTHON) tools/setup.py test
	@$(MAKE) --no-print-directory --jobs=$(or $(WORKERS),3) --output-sync=target check-all

# In the order of what takes longest.
check-all: check-types check-labextension check-clang check-lint check-imports check-headers check-house

check-lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types:
	$(BIN)/mypy

check-imports:
	$(BIN)/lint-imports

check-clang:
	tools/check-clang

check-headers:
	$(BIN)/python tools/check-entry-points
	$(BIN)/python tools/check-nvml

check-labextension:
	tools/check-labextension

check-house: check-labextension # which writes what this reads
	$(BIN)/pytest -q $(CHECKED)

check-releases: ## The gateway with the oldest and the newest releases of Jupyter that it allows (needs the package index; minutes)
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python tools/check-jupyter-releases

soak: check-releases ## Long fuzzing, kill -9 by the hundreds, Jupyter's own test suites; ALIQUOT_SOAK is the factor (minutes)
	@$(PYTHON) tools/setup.py test --upstream --systems
	ALIQUOT_SOAK=$(or $(ALIQUOT_SOAK),20) $(BIN)/pytest -m soak -rA tests

test-torch: ## PyTorch's own wheel on the software GPU, through the hook (downloads several GB)
	@$(PYTHON) tools/setup.py test --torch
	ALIQUOT_TORCH_PYTHON=build/torch/bin/python $(BIN)/pytest -m torch -rA tests/torch

test-binder: ## As root: the image of Binder, built by repo2docker with Podman, and its quickstart in a browser (minutes)
	@$(PYTHON) tools/setup.py test --systems
	@command -v mmdebstrap >/dev/null || { echo "make test-binder: needs mmdebstrap (Debian: apt-get install mmdebstrap)"; exit 1; }
	ALIQUOT_SOAK=1 $(BIN)/pytest -m soak -rA tests/containers/test_binder.py

test-cluster: ## The API's answers that Aliquot builds on, from a real cluster: ALIQUOT_KUBECONFIG names its kubeconfig
	@$(PYTHON) tools/setup.py test
	@: $${ALIQUOT_KUBECONFIG:?Set ALIQUOT_KUBECONFIG to the kubeconfig of a cluster in which tests may make namespaces}
	$(BIN)/pytest -rA tests/provisioner/kubernetes/conformance

test-gpu: ## On a GPU machine: the C suite, and PyTorch, CuPy, JAX and Numba through the hook; needs no network
	@$(PYTHON) tools/gpu_tests.py --gpu $(or $(GPU),nvidia) $(ARGS)

bench-gateway: ## Kernel start and execute round trip against plain Jupyter Server, interleaved
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python benchmarks/gateway.py $(ARGS)

bench-owner: ## As root: start of a kernel as its owner against stock JupyterHub under the same spawner, interleaved
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python benchmarks/owner.py $(ARGS)

bench-runtime: ## Containers against the plain engine, relays against none, adoption of 200 kernels
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python benchmarks/runtime.py $(ARGS)

bench-density: ## GPUs that a notebook trace needs: leases against reservation, in simulated time (DATA=folder of the trace)
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python benchmarks/density.py $(if $(DATA),--data $(DATA)) $(ARGS)

bench-plan: ## The planner against published tables: completion times, allocation of a cluster (DATA=folder of the traces)
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python benchmarks/plan.py $(if $(DATA),--data $(DATA)) $(ARGS)

bench-compute: ## Compute shares: our controller, none, TGS's, a HAMi-like and time quanta on a simulated GPU, in simulated time
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python benchmarks/compute.py $(ARGS)

bench-hook: ## What the hook adds to a call, on a null driver; PEERS="HAMi-core=/path/to/libvgpu.so …" measures others too
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python benchmarks/hook.py $(foreach peer,$(PEERS),--peer $(peer)) $(ARGS)

bench-swap: ## Swapping: copies against a pinned one, wake to first launch, cost while running; ARGS="--nvshare /path/to/libnvshare.so"
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python benchmarks/swap.py $(ARGS)

bench-lab: ## The lab extension in Chromium: bundle, first paint, state change to pixel, idle cost, a cell against plain Jupyter
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python benchmarks/lab.py $(ARGS)

bench-load: ## One gateway with 1,000 kernels of 200 users: status, memory, churn, restart; ARGS="--churn 3600" is an hour
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python benchmarks/load.py $(ARGS)

bench-usage: ## The report of a month over 200 users, from the accounting of two years
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python benchmarks/usage.py $(ARGS)

bench-door: ## A grant at the gateway's socket for programs of 200 accounts
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python benchmarks/door.py $(ARGS)

bench-kubernetes: ## Kernels as pods on doubles of a cluster: starts, return after a restart, failover, agents, API calls
	@$(PYTHON) tools/setup.py test
	@$(BIN)/python benchmarks/pods.py $(ARGS)

bench-gpu: ## On a GPU machine: what the hook adds to a call there, swapping, compute controllers; needs no network
	@$(PYTHON) tools/gpu_tests.py --bench --gpu $(or $(GPU),nvidia) $(ARGS)

screenshot: ## Take the pictures of the documents, light and dark, from servers that run (docs/images)
	@$(PYTHON) tools/setup.py test
	$(BIN)/python tests/labextension/take_screenshot.py docs/images

labextension: ## Rebuild the committed browser bundle (needs Node 20)
	@$(PYTHON) tools/setup.py test
	$(BIN)/jlpm install --immutable
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/jlpm build:prod

release-check: ## Build a release into build/release and install it into empty environments; publishes nothing
	@$(PYTHON) tools/release_check.py $(ARGS)

readme-check: ## As root: the README on bare Debian and Ubuntu systems, from the clone to the demo's table, timed (minutes)
	@$(PYTHON) tools/machines $(ARGS)

clean: ## Remove the environment and all that was built
	rm -rf .venv build node_modules .yarn labextension/lib
