# The commands that matter: make demo; make check at every step; make test before it is handed on.
PYTHON ?= python3
BIN := .venv/bin
SAMPLE := samples/openrlhf-save-kill/run

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/doctor: pyproject.toml .ci/base.lock
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -qq --disable-pip-version-check -r .ci/base.lock
	$(BIN)/pip install -qq --disable-pip-version-check --no-deps -e .
	@touch $@

.venv/.check: $(BIN)/doctor .ci/check.lock
	$(BIN)/pip install -qq --disable-pip-version-check -r .ci/check.lock
	@touch $@

.venv/.dev: .venv/.check .ci/dev.lock
	$(BIN)/pip install -qq --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install -qq --disable-pip-version-check -r .ci/dev.lock
	@touch $@

.venv/.vllm: .venv/.dev .ci/vllm.txt
	$(BIN)/pip install -qq --disable-pip-version-check --no-deps -r .ci/vllm.txt
	@touch $@

.venv/.programs: .venv/.dev .ci/programs.txt
	$(BIN)/pip install -qq --disable-pip-version-check --no-deps --upgrade --target .venv/programs -r .ci/programs.txt
	@touch $@

.venv/.site: .venv/.check .ci/site.txt
	$(BIN)/pip install -qq --disable-pip-version-check --only-binary :all: -r .ci/site.txt
	@touch $@

.venv/.fuzz: .venv/.check .ci/fuzz.txt
	$(BIN)/pip install -qq --disable-pip-version-check --only-binary :all: -r .ci/fuzz.txt || echo "atheris has no wheel for this Python: mutations of seeds instead"
	@touch $@

.venv/.dist: .venv/.check .ci/dist.txt
	$(BIN)/pip install -qq --disable-pip-version-check -r .ci/dist.txt
	@touch $@

install: $(BIN)/doctor ## the small environment: no torch, no Ray

demo: $(BIN)/doctor ## diagnose a recorded incident (exit code 1 = an incident was found)
	@echo '$$ doctor analyze $(SAMPLE)'
	@$(BIN)/doctor analyze $(SAMPLE); test $$? -eq 1

lab: .venv/.dev ## every incident: run, diagnose, patch, run again (root, cgroup v1; some 25 minutes)
	$(BIN)/python -m trainer.lab run --all

check: lint ## at every step, on a small environment: lint, rules on their samples, the tests that need no more
	$(BIN)/doctor rules test
	$(BIN)/python -m pytest -n 2 --no-loadscope-reorder -m "not (live or lab or network or browser or sweep)"

slow: .venv/.dev ## measure which tests `make check` leaves to `make test`: those of more than 0.1 s (some ten minutes)
	rm -f .venv/slow.txt && : > tests/slow.txt
	RLHFDOCTOR_SLOW=.venv/slow.txt $(BIN)/python -m pytest -n 2 --no-loadscope-reorder -m "not (live or lab or network or browser or sweep)" || true
	sort .venv/slow.txt > tests/slow.txt

test: .venv/.dev .venv/.vllm .venv/.programs .venv/.site lint ## everything: checks, rules on their samples, the whole test suite
	$(BIN)/doctor rules test
	$(BIN)/python -m pytest -n 2 --no-loadscope-reorder

messages: .venv/.check ## bring the catalogues of all languages up to date with the messages
	$(BIN)/python -m tests.messages --write

lint: .venv/.check ## ruff, mypy --strict, import contracts, spelling
	$(BIN)/ruff check . && $(BIN)/ruff format --check rlhfdoctor
	$(BIN)/mypy && PATH=$(BIN):$$PATH $(BIN)/lint-imports --no-cache > .venv/imports.txt || { cat .venv/imports.txt; exit 1; }
	$(BIN)/codespell --ignore-regex '\w+…' --skip 'tests/fuzz/found/*' rlhfdoctor rules/conditions.yaml rules/*/rule.yaml tests *.md

calibrate: .venv/.dev ## fit the confidences anew to labelled incidents, with held-out folds
	$(BIN)/python -m tests.exam.calibrate --write

weigh: .venv/.dev ## fit the rules' weights to labelled incidents, and score them on rounds held out
	$(BIN)/python -m tests.exam.weigh --write

fuzz: .venv/.fuzz ## random inputs for every parser, guided by coverage where atheris has a wheel (ten minutes; prints its seed)
	$(BIN)/python -m tests.fuzz.run --seconds 540
	FUZZ_EXAMPLES=2000 $(BIN)/python -m pytest -q tests/fuzz/test_structures.py

exam: .venv/.dev ## the doctor's own exam: scores, dropped sources, changes that may not matter
	$(BIN)/python -m tests.exam.exam --write
	$(BIN)/python -m tests.exam.explained --write

schemas: .venv/.dev ## read the names that each release takes, and count the patches (needs the network)
	$(BIN)/python -m tests.frameworks.schemas

upstream: .venv/.dev ## the estimate on the frameworks' own examples (needs clones, see the head of the script)
	$(BIN)/python -m tests.frameworks.upstream

mangle: .venv/.check ## what is still read of logs that were quoted, cut, wrapped or translated
	$(BIN)/python -m tests.exam.mangle

speakers: .venv/.dev ## what other programs can say, by release, and what of it is read (needs clones, see the head of the script)
	$(BIN)/python -m tests.speakers.speakers

bench: .venv/.dev ## ratios against anchors, apart from the tests
	$(BIN)/python tests/bench/start.py && $(BIN)/python tests/bench/record.py

speed: .venv/.dev ## `doctor analyze` beside ripgrep on a Ray session of 0.1, 1 and 10 GB, and on three raylets (RG=/path/to/rg; some 20 minutes)
	$(BIN)/python -m tests.bench.speed --ten --write && $(BIN)/python -m tests.bench.cluster --write

budget: .venv/.dev ## measured runs against the memory budget (more than an hour; runs that are there are kept)
	for set in first second third resumed again; do $(BIN)/python tests/bench/budget.py measure --set $$set || exit 1; done && $(BIN)/python tests/bench/budget.py table --write > /dev/null

dist: .venv/.dist ## wheel and source distribution, each tried in an empty environment (needs the network; some three minutes)
	rm -rf dist
	$(BIN)/python -m build --outdir dist > .venv/build.txt 2>&1 || { cat .venv/build.txt; exit 1; }
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/python -m tests.dist dist

ARCH ?= $(shell uname -m)
PLATFORMS := $(foreach minor,10 11 12 13 14,--platform manylinux2014_$(ARCH)-cp-3$(minor)-cp3$(minor))
ONLY := $(foreach name,msgspec zstandard PyYAML MarkupSafe,--only-wheel $(name))

zipapp: .venv/.dist ## dist/doctor-ARCH.pyz: the doctor in one file, for containers without pip (Python 3.10 to 3.14; needs the network; a minute)
	rm -rf .venv/wheel && $(BIN)/python -m build --wheel --outdir .venv/wheel > .venv/build.txt 2>&1 || { cat .venv/build.txt; exit 1; }
	$(BIN)/pex .venv/wheel/*.whl $(PLATFORMS) $(ONLY) --exclude hyperscan -c doctor --venv prepend -o dist/doctor-$(ARCH).pyz > .venv/pex.txt 2>&1 || { cat .venv/pex.txt; exit 1; }
	test $(ARCH) != $$(uname -m) || $(BIN)/python -m tests.dist dist/doctor-$(ARCH).pyz

gpu: ## on a CUDA machine: what the doctor assumes of it, measured (ten minutes at most, goes on where it was; see tests/gpu/__main__.py)
	$(PYTHON) -m tests.gpu $(ARGS)

docs: $(BIN)/doctor ## write the generated pages anew
	$(BIN)/python -m tests.docs --write

site: .venv/.site ## build the documentation into .venv/site; a warning is an error (Python 3.11 or newer)
	$(BIN)/python -m sphinx -q -n -W --keep-going -c .ci/site -d .venv/site-cache rlhfdoctor/docs .venv/site && echo "open .venv/site/index.html"

lock: ## resolve the development environment anew (needs the network)
	rm -rf .venv && $(PYTHON) -m venv .venv && $(BIN)/pip install -q . && $(BIN)/pip freeze --exclude rlhfdoctor > .ci/base.lock
	$(BIN)/pip install -q torch==2.13.0 && $(BIN)/pip install -q -r .ci/dev.in && $(BIN)/pip freeze --exclude rlhfdoctor | grep -v '^torch==' > .ci/dev.lock
	rm -rf .venv && $(PYTHON) -m venv .venv && $(BIN)/pip install -q -c .ci/dev.lock -r .ci/base.lock -r .ci/check.in && $(BIN)/pip freeze > .ci/check.lock

.PHONY: help install demo lab check test lint messages calibrate weigh slow fuzz exam mangle zipapp schemas upstream speakers bench speed gpu docs dist site lock
