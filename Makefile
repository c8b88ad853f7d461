# One command from a fresh clone to a result: each target makes .venv and installs what it needs, once.
#   make demo     demonstrations, training, evaluation and a report in runs/demo
#   make test     the tests of at most two seconds each, in eight minutes on two cores
#   make test-slow  the other tests; continuous integration runs both
#   make check    formatting, types, direction of imports, and the package itself
#   make docs     the documentation with the API reference, in site/index.html
#   make stress   the tests that take minutes each
#   make mutate   takes each stage out of the safety filter and each guard out of the drivers; names the test that notices
#   make interop  whether lerobot (0.4.4, and with Python 3.12 the newest), diffusion_policy's ReplayBuffer and robomimic's
#                 scripts read what we write and we read what they write, whether old numcodecs runs code of data sets,
#                 whether we move the arm of drake's classes, and whether MetaWorld's tasks and experts run here;
#                 makes .venv-interop and others beside it
#   make install  .venv, and nothing more
# Another Python: make PYTHON=python3.12 demo
# Debian's packages for EGL, venv, and browser and networks of the tests come with the first target that needs them: as root they are
# installed, otherwise one line says how. make SYSTEM=no demo goes on without.

PYTHON ?= python3
VENV := .venv
INTEROP := .venv-interop
NEWER ?= python3.12
OLD_NUMCODECS := $(INTEROP)-numcodecs-0.14.1 $(INTEROP)-numcodecs-0.16.3
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -c constraints.txt
# A line for every twentieth package that pip finds or fetches; errors, and what pip says of a conflict, pass by.
SHOWN := awk '/conflict is caused by/ {all = 1} all {print; next} \
  /^ *(Collecting|Downloading|Using cached)/ && ++n % 20 == 0 {print "  " $$1, $$2; fflush()}'
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

SYSTEM ?= yes
APT ?= apt-get
USER_ID ?= $(shell id -u)
FIND_EGL ?= PATH="$$PATH:/sbin:/usr/sbin" ldconfig -p | grep -E 'libEGL_(mesa|nvidia)'
FIND_VENV ?= [ -x $(BIN)/python ] || $(PYTHON) -c 'import ensurepip'
FIND_BROWSER ?= command -v chromium && command -v chromedriver
FIND_IP ?= command -v ip

# $(call bring_in,what it is,how it is found,Debian's packages)
define bring_in
@[ "$(SYSTEM)" = no ] || { $(2); } >/dev/null 2>&1 || { \
  if ! command -v $(APT) >/dev/null; then \
    echo "$(1) was not found; Debian's packages for it are: $(3). To go on without: make SYSTEM=no $(MAKECMDGOALS)" >&2; exit 2; \
  elif [ "$(USER_ID)" != 0 ]; then \
    echo "$(1) was not found. First: sudo apt-get install -y --no-install-recommends $(3)" \
      "(to go on without: make SYSTEM=no $(MAKECMDGOALS))" >&2; exit 2; \
  fi; \
  echo "Installing $(3) ..."; \
  $(APT) update -qq && DEBIAN_FRONTEND=noninteractive $(APT) install -qq -y --no-install-recommends $(3) >/dev/null; }
endef
RUNTIME := $(VENV)/.installed-runtime
DEV := $(VENV)/.installed-dev

.PHONY: help install demo test test-slow docs stress mutate interop interop-newest check lint types imports package
help:
	@sed -n 's/^#   //p' Makefile

install: $(RUNTIME)

demo: $(RUNTIME)
	$(BIN)/stringline-demo

# Three, also on two cores: the one that has the arms mostly waits for their clocks.
test: $(DEV)
	$(BIN)/python -m pytest -q -n 3 --dist loadfile -m "not slow and not stress" --durations=10 --durations-min=4

test-slow: $(DEV)
	$(BIN)/python -m pytest -q -n 3 --dist loadfile -m "slow and not stress"

docs: $(DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The documentation is in site/. To read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

stress: $(DEV)
	$(BIN)/python -m pytest -v -m stress -n 2 --dist worksteal

mutate: $(DEV)
	$(BIN)/python -m tests.real_robot.mutate

interop: $(DEV) $(OLD_NUMCODECS) $(INTEROP)/.installed $(INTEROP)/.installed-drake $(INTEROP)/.installed-robomimic $(INTEROP)-zarr2/.installed \
  $(INTEROP)-metaworld/.installed
	PYTHONPATH=.src $(BIN)/python tests/datasets/formats/check_lerobot.py $(INTEROP)/bin/python
	PYTHONPATH=.src $(BIN)/python tests/datasets/formats/check_robomimic.py $(INTEROP)/bin/python
	PYTHONPATH=.src $(BIN)/python tests/datasets/formats/check_numcodecs.py $(OLD_NUMCODECS)
	INTEROP_PATH=$(INTEROP)-zarr2/diffusion_policy PYTHONPATH=.src $(BIN)/python \
	  tests/datasets/formats/check_replay_buffer.py $(INTEROP)-zarr2/bin/python
	PYTHONPATH=.src $(BIN)/python tests/real_robot/drivers/lcm/check_drake.py $(INTEROP)/bin/python
	PYTHONPATH=.src $(BIN)/python tests/sim/interpreters/check_metaworld.py $(INTEROP)-metaworld/bin/python
	@if $(NEWER) -c "" 2>/dev/null; then $(MAKE) interop-newest; else \
	  echo "The newest lerobot needs Python 3.12, and $(NEWER) does not start; name one:" \
	    "make interop NEWER=/path/to/python3.12" >&2; fi

interop-newest: $(DEV) $(INTEROP)-newest/.installed
	PYTHONPATH=.src $(BIN)/python tests/datasets/formats/check_lerobot.py $(INTEROP)-newest/bin/python

# lerobot 0.4.4, the last one for Python 3.11, asks for older versions of PyTorch, NumPy and others than we test with; what its
# data sets need of it runs with those as well. So it comes without its dependencies, and they by name.
$(INTEROP)/.installed:
	@echo "Installing lerobot into $(INTEROP) (some minutes) ..."
	@$(PYTHON) -m venv $(INTEROP)
	@$(INTEROP)/bin/pip install --quiet --disable-pip-version-check torch==2.13.0 torchvision==0.28.0 \
	  'accelerate<2' 'av>=15,<16' 'datasets>=4,<5' 'deepdiff<9' 'diffusers<0.36' draccus==0.10.0 einops 'gymnasium<2' \
	  'huggingface-hub>=0.34.2,<0.36' 'imageio[ffmpeg]<3' jsonlines 'opencv-python-headless<4.13' 'packaging<26' pandas \
	  'termcolor<4'
	@$(INTEROP)/bin/pip install --quiet --disable-pip-version-check --no-deps lerobot==0.4.4
	@touch $@

# The same for lerobot 0.6.1, with PyTorch as above.
$(INTEROP)-newest/.installed:
	@echo "Installing the newest lerobot into $(INTEROP)-newest (some minutes) ..."
	@$(NEWER) -m venv $(INTEROP)-newest
	@$(INTEROP)-newest/bin/pip install --quiet --disable-pip-version-check torch==2.13.0 torchvision==0.28.0 \
	  'accelerate<2' 'av>=15,<16' 'datasets>=4.8,<5' draccus==0.11.6 einops 'gymnasium<2' 'huggingface-hub>=1.6,<2' \
	  'imageio[ffmpeg]<3' jsonlines 'numpy<2.3' 'opencv-python-headless<4.14' 'packaging<26' 'pandas<3' 'requests<3' \
	  'setuptools<82' 'termcolor<5'
	@$(INTEROP)-newest/bin/pip install --quiet --disable-pip-version-check --no-deps lerobot==0.6.1
	@touch $@

# Versions that unpickle what they decode, beside the other packages of .venv.
$(OLD_NUMCODECS): $(INTEROP)-numcodecs-%: | $(DEV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $@ numcodecs==$*

# robomimic's scripts without what it renders and trains with.
$(INTEROP)/.installed-robomimic: $(INTEROP)/.installed
	@$(INTEROP)/bin/pip install --quiet --disable-pip-version-check h5py imageio matplotlib psutil six tensorboardX tqdm
	@$(INTEROP)/bin/pip install --quiet --disable-pip-version-check --no-deps robomimic==0.3.0
	@touch $@

# diffusion_policy is no package; its replay buffer needs zarr 2.
$(INTEROP)-zarr2/.installed:
	@$(PYTHON) -m venv $(INTEROP)-zarr2
	@$(INTEROP)-zarr2/bin/pip install --quiet --disable-pip-version-check zarr==2.18.3 'numcodecs<0.14' 'numpy<2'
	@git init --quiet $(INTEROP)-zarr2/diffusion_policy
	@git -C $(INTEROP)-zarr2/diffusion_policy fetch --quiet --depth 1 https://github.com/real-stanford/diffusion_policy \
	  5ba07ac6661db573af695b419a7947ecb704690f
	@git -C $(INTEROP)-zarr2/diffusion_policy checkout --quiet FETCH_HEAD
	@touch $@

# MetaWorld 3.1.1 asks for MuJoCo 3.3.0. The commands are those of docs/other-environments.md.
$(INTEROP)-metaworld/.installed:
	@$(PYTHON) -m venv $(INTEROP)-metaworld
	@$(INTEROP)-metaworld/bin/pip install --quiet --disable-pip-version-check metaworld==3.1.1 packaging msgpack
	@touch $@

# Of what drake depends on, its receiver, sender and LCM need NumPy only.
$(INTEROP)/.installed-drake: $(INTEROP)/.installed
	@$(INTEROP)/bin/pip install --quiet --disable-pip-version-check --no-deps drake==1.51.1
	@touch $@

# Each part is a target of its own, so that `make -k check` goes through all of them.
check: lint types imports package docs

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy
	$(BIN)/pyright

imports: $(DEV)
	$(BIN)/lint-imports --no-cache --no-logo

package: $(DEV)
	$(BIN)/python tests/packaging/check_distributions.py

.PHONY: egl venv browser ip
egl:
	$(call bring_in,EGL (drawing without a screen),$(FIND_EGL),libegl1 libgl1 libgles2 libgl1-mesa-dri)

venv:
	$(call bring_in,Python's venv,$(FIND_VENV),python3-venv)

browser:
	$(call bring_in,Chromium (tests look at pages),$(FIND_BROWSER),chromium chromium-driver)

ip:
	$(call bring_in,ip (tests make networks of their own),$(FIND_IP),iproute2)

$(BIN)/python: | venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Stringline needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	    "Name another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "Debian and Ubuntu keep venv apart: apt install python3-venv" >&2; rm -rf $(VENV); exit 2; }

$(RUNTIME): pyproject.toml constraints.txt | egl $(BIN)/python
	@echo "Installing into $(VENV) (some minutes the first time) ..."
	@$(PIP) -e . | $(SHOWN)
	@touch $@

$(DEV): pyproject.toml constraints.txt | browser ip $(RUNTIME)
	@echo "Installing the tools for tests and checks into $(VENV) (some minutes the first time) ..."
	@$(PIP) -e '.[dev]' | $(SHOWN)
	@touch $@ $(RUNTIME)
