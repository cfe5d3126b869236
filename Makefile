# The commands for contributors. dev/up does most of the work.

# -trimpath removes the clone's path from compiled packages, so that all clones share Go's build cache.
export GOFLAGS := -trimpath $(filter-out -trimpath,$(shell go env GOFLAGS 2>/dev/null))

tool = go tool -modfile=$(CURDIR)/dev/tools/go.mod
# The client is a separate module, so that its importers inherit none of the service's dependencies. dev/helm is a
# separate module, so that the service inherits none of the dependencies for Helm.
modules = . $(wildcard client dev/helm)
typescript = client/typescript
python = cd client/python && ../../dev/python
in_each = for module in $(modules); do (cd $$module && set -x && $(1)) || exit; done
each = @$(in_each)

help: ## list the targets
	@sed -n 's/^##@ /\n/p; s/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

##@ Run it

run: ## start the whole system in the foreground; Ctrl-C stops it
	@dev/up run

up: ## start the whole system in the background; return when every part responds
	@dev/up start

down: ## stop the system and keep its data
	@dev/up stop

clean-dev: ## stop the system and delete its data
	@dev/up clean

##@ See it work

outage: ## prove that no usage is lost or billed twice when Stripe fails and a worker is killed
	@dev/up start >/dev/null
	@go run ./dev/outage

invoice: ## bill two months of customers of every kind at Stripe, and compare the invoices with the usage
	@dev/up test go run ./dev/invoice

limits: ## warn a customer with a hard quota at 80 %, stop it at 100 %, and serve it again in the next hour
	@dev/up test go run ./dev/limits

attack: ## measure the effect of attackers on another tenant: each attack for EACH=10 seconds, then most of them together in ROUNDS=5 of SECONDS=60; exit 1 beyond the bounds
	@dev/up test go run ./dev/attack

e2e = CREDENTIALS=$(CURDIR)/.dev/credentials.json npm run --silent --prefix dashboard e2e --

pictures: dashboard/node_modules ## take the pictures in docs from the running system; needs Chromium or Chrome
	@dev/up browser
	@dev/up start >/dev/null
	$(e2e) e2e/pictures

newcomer: dashboard/node_modules ## follow the labels of the dashboard from a meter to a bill at the fake of Stripe, in the demo tenant; needs Chromium or Chrome
	@dev/up browser
	@dev/up start >/dev/null
	MEASURE=yes $(e2e) e2e/newcomer
	@dev/up start >/dev/null # restores the demo tenant's own provider

##@ Build it

build: dashboard ## build bin/odometer with the dashboard in it
	go build -o bin/odometer ./cmd/odometer

# The API serves the dashboard at /. If the dashboard was not built, the program contains a placeholder page instead, so
# that go build needs no Node.
dashboard: dashboard/dist/built/index.html ## build the dashboard for the next go build; needs Node 20.19, 22.12 or newer

dashboard/dist/built/index.html: dashboard/node_modules $(shell find dashboard client/typescript -type d \( -name node_modules -o -name dist \) -prune -o -type f -print)
	npm run --silent --prefix dashboard build

##@ Test it

test: test-setup ## test every rule, contract, property, replay and interface with servers of its own
	@$(call run_tests,-skip '$(in_test_long)')

test-long: test-setup ## run the drills: kills, load, a browser on every screen, many simulated lives
	@HISTORIES=100 $(call run_tests,-run '^Test(Drill|Property)')

test-one: named-test test-setup ## run one test and show its output: TEST=db.TestX, or TEST=db.TestX/Case
	@$(call run_tests,-one '$(TEST)')

named-test:
	$(if $(TEST),,$(error Name a test, such as TEST=db.TestX/Case))

RUNS = 5
stress: test-setup ## run make test RUNS times while another program keeps every core busy, with late responses in the dashboard's tests; stop at the first failure
	@export ANSWER_DELAY=150; for run in $$(seq $(RUNS)); do go run ./dev/stress $(MAKE) --no-print-directory test || exit; uptime; done

# go list -export compiles all packages without linking programs. go build would link every program each time.
test-setup: # slow only the first time
	@dev/up setup
	@$(call in_each,go list -export -deps ./... >/dev/null)

# Drills are named TestDrill…, and run only in test-long. Property tests are named TestProperty…. They run in test, and
# with more histories in test-long. check runs both targets, and skips property tests in its run of test.
in_test_long = ^TestDrill

# The tests' servers run without durability. A test that crashes a server starts its own server with durability.
# With jit off, recounts need half the CPU time. The service's own connections always disable jit.
test_settings = -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c jit=off
run_tests = DATABASE_SETTINGS="$(test_settings) $$DATABASE_SETTINGS" dev/up test go run ./dev/testrun $$(dev/up race) $(1) $(modules); status=$$?; \
	[ -n "$(TEST_COMMUNITY_DATABASE_URL)" ] || \
		echo "TEST_COMMUNITY_DATABASE_URL is not set: what only TimescaleDB's Community edition does was not tested."; \
	exit $$status

test-dates: ## test the rules on thirteen other days: each weekday, and changes of the month, the year and the offset from UTC
	dev/up test dev/test-dates

stripe-live: ## test the assumptions about Stripe with STRIPE_SECRET_KEY, a test mode key
	$(if $(STRIPE_SECRET_KEY),,$(error Set STRIPE_SECRET_KEY to a test mode key of Stripe, which begins with sk_test_ or rk_test_))
	STRIPE_LIVE=yes go test ./providers/stripe -run TestStripeKeepsItsContract -v -count=1 -parallel 16 -timeout 1h

LIVES = 1000000
SEED = 1
FAILURES = 1
simulate: ## simulate LIVES lives of customers with the rules of billing, from SEED on, until FAILURES of them failed
	LIVES=$(LIVES) SEED=$(SEED) FAILURES=$(FAILURES) go test ./billing -run TestPropertyLives -v -count=1 -timeout 6h

EVENTS = 1000000
KILLS = 20
recount: ## ingest EVENTS events for meters with group_by during KILLS kills of the API and the worker, and compare the usage with a recount in SQL and in Go
	dev/up test env EVENTS=$(EVENTS) KILLS=$(KILLS) go test ./cmd/odometer -run TestDrillMetersOverProperties -v -count=1 -timeout 6h

mutate: ## put faults into the rules of billing one at a time, in all files or ONLY=plans.go; exit 1 if the tests notice too few. FAULTS=. repeats known faults, which lives must find
	go run ./dev/mutate $(if $(FAULTS),-faults '$(FAULTS)' -lives 20000,-only '$(ONLY)')

##@ Measure it

bench: ## measure the figures of docs/performance.md, and how fast the dashboard paints
	dev/up test go run ./dev/bench
	dev/up test env AUTO_SYNC_CUSTOMERS=10000 go test ./worker -run TestAutoSyncSyncsOnlyChangedCustomers -v -timeout 20m
	MEASURE=yes $(MAKE) --no-print-directory test-one TEST=cmd/odometer.TestDrillTheDashboardIsUsedInABrowser

# The database settings suit a server with 24 GB of memory and 10^8 events: a quarter of the memory for buffers, and rare
# checkpoints.
large_settings = -c shared_buffers=6GB -c max_wal_size=16GB -c checkpoint_timeout=30min
LARGE_EVENTS = 100000000
bench-large: ## measure ingest and reads with LARGE_EVENTS stored events; the default of 10^8 needs 60 GB and up to an hour
	DATABASE_SETTINGS="$(large_settings)" dev/up test env LARGE_EVENTS=$(LARGE_EVENTS) go run ./dev/bench large

##@ Change it

# -skip=-record keeps the recorded workflow histories, which show how open runs began. Only a maintainer decides to
# record new histories.
generate: $(typescript)/node_modules ## generate code, documents and clients from their sources
	$(call each,go generate -skip=-record ./...)
	npm run --silent --prefix $(typescript) generate
	$(python) python generate.py

%/node_modules: %/package-lock.json
	npm ci --loglevel=error --no-audit --no-fund --ignore-scripts --prefix $* >&2
	@touch $@

# BASE is the last release. Before the first release, breaking changes are allowed.
BASE = $(shell git describe --tags --abbrev=0 2>/dev/null)
breaking: ## list changes that break clients of the last release, or of BASE=ref
	$(if $(BASE),$(tool) oasdiff breaking --fail-on WARN $(BASE):api/openapi-3.0.json api/openapi-3.0.json,@echo "There is no release to break.")

GOVULNDB ?= https://vuln.go.dev
lint: ## check formatting, subjects of the last commits, the code with linters, and known vulnerabilities if GOVULNDB responds
	@git log -20 --format=%s | awk 'length($$0) > 72 || !/^[[:alnum:]_.\/-]+(, [[:alnum:]_.\/-]+)*: [^ ]/ \
		{ print "This commit has not the subject \"part: what it does\" of at most 72 characters: " $$0; bad = 1 } END { exit bad }'
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$unformatted" ] || \
		{ echo "Not formatted (gofmt -w them):"; echo "$$unformatted"; exit 1; }
	$(call each,go vet ./...)
	$(call each,$(tool) golangci-lint run --allow-parallel-runners)
	$(tool) workflowcheck ./workflows/...
	@if curl -fsS --max-time 3 -o /dev/null $(GOVULNDB)/index/db.json 2>/dev/null; then $(call in_each,$(tool) govulncheck -db $(GOVULNDB) ./...); \
		else echo "$(GOVULNDB) does not answer: known vulnerabilities are not looked for."; fi
	$(python) ruff format --check --quiet
	$(python) ruff check --quiet
	$(python) mypy --no-error-summary
	dev/up shellcheck

# The dashboard is built first, before another target installs packages that the build could use by mistake.
check: ## run the checks of CI: the dashboard's build, lint, compatibility, generated files and all tests
	@dev/up dashboard && [ -e dashboard/dist/built/index.html ]
	@$(MAKE) --no-print-directory lint breaking
	@state() { git status --porcelain; git diff; }; before=$$(state) && $(MAKE) --no-print-directory generate && \
		[ "$$before" = "$$(state)" ] || { echo "make generate changed something: commit it."; git status --short; exit 1; }
	@$(MAKE) --no-print-directory test test-long in_test_long='^Test(Drill|Property)'

.PHONY: help run up down clean-dev outage invoice limits attack pictures newcomer build dashboard test test-long test-one named-test test-setup stress test-dates stripe-live simulate recount mutate bench bench-large generate breaking lint check
