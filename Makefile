# Everything needs git, make and Python 3.11 or newer; the rest is installed below build/ by what needs it.
.PHONY: help demo test soak bench h200 docs picture lint sanity artifact venv clean
.DEFAULT_GOAL := help

# Compiled bytecode goes below build/ and is used, even where the environment switches it off: hundreds of Python processes start.
export PYTHONDONTWRITEBYTECODE =
export PYTHONPYCACHEPREFIX = $(CURDIR)/build/pycache

PYTEST = build/venv/bin/python -m pytest
# More processes than the two processors of a small machine: a lab waits about as long as it works.
PARALLEL = -n 3 --dist loadscope --no-loadscope-reorder

help:
	@echo "make demo      an empty cluster with simulated GPU nodes becomes shared GPUs; ends with the report"
	@echo "make test      what CI runs: linters, unit tests, ansible-test sanity, integration in the lab"
	@echo "make soak      everything, as long as it takes: three releases of ansible-core, kills, faults, 500 nodes"
	@echo "make bench     how fast it is, compared with kubectl and openstack, in the lab; writes docs/performance.md"
	@echo "make h200      what NVIDIA's agents say on a real H200, from the simulator and from the agents themselves"
	@echo "make docs      writes the files that are generated: pages, documentation of variables, action plugins, defaults of roles"
	@echo "make picture   draws the page of a report in the lab; writes docs/report.svg"
	@echo "make lint      the linters alone"
	@echo "make sanity    ansible-test sanity on ansible-core 2.16, 2.19 and 2.21"
	@echo "make artifact  the collection's tar.gz in build/artifact"
	@echo "make venv      the tools in build/venv"
	@echo "make clean     stops the labs and removes build/"

demo:
	@tools/demo

test: venv
	@tools/packages bwrap cc curl skopeo buildah
	@$(PYTEST) $(PARALLEL) -m "not soak"

soak: venv
	@tools/packages bwrap cc curl skopeo buildah
	@$(PYTEST) $(PARALLEL)

bench: venv
	@tools/packages bwrap skopeo buildah
	@PYTHONPATH=build:. build/venv/bin/python -m tests.performance.bench

h200: venv
	@tools/packages bwrap cc
	@$(PYTEST) tests/integration/agents/test_h200.py

docs: venv
	@PYTHONPATH=build:. build/venv/bin/python -m tests.pages

picture: venv
	@tools/packages bwrap
	@PYTHONPATH=build:. build/venv/bin/python -m tests.pages.pictures

lint: venv
	@$(PYTEST) tests/quality/test_lint.py tests/quality/test_architecture.py

sanity: venv
	@$(PYTEST) tests/quality/test_sanity.py::test_sanity

artifact: venv
	@tools/artifact

venv:
	@tools/venv

clean:
	@tools/clean
