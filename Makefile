# What can be done here; `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Where cargo builds.
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# The programs as they ship: the image contains them, and tests and demo run them.
SHIPPED := $(TARGET)/shipped
# And kubectl's plugin, which has dependencies of its own, and is in no image.
PLUGIN := $(TARGET)/plugin
# What is built for, amd64 or arm64, as images call it; the programs of another machine go into folders of their own.
NATIVE := $(patsubst aarch64,arm64,$(patsubst x86_64,amd64,$(shell uname -m)))
ARCH ?= $(NATIVE)
ARCHES ?= $(ARCH)
# Installs what it needs to build for another machine.
FOR_ARCH = $(if $(filter-out $(NATIVE),$(ARCH)),.ci/tools arm64)
# The folder of what is built for an architecture. Arguments: that of this machine's own, the architecture.
folder = $(1)$(patsubst %,-%,$(filter-out $(NATIVE),$(2)))

CARGO_DENY_VERSION := 0.20.2
CARGO_MACHETE_VERSION := 0.9.2
CARGO_MUTANTS_VERSION := 27.1.0
ACTIONLINT_VERSION := 1.7.12
TERMTOSVG_VERSION := 1.1.0
# Without make's job server, which cargo would look for: it has its own.
ALONE := env -u MAKEFLAGS -u MFLAGS
PROMETHEUS_RULE := kustomize/components/prometheus-operator/prometheus-rule.yaml
ALERTS := kustomize/components/prometheus-sample/alerts.yaml
# The most that users may meet of each, and the most lines of code that may ship.
CONCEPTS := variables=11 objects=49 alerts=20 reasons=52 components=8 policies=7 lines=25500

# For `make yaml`: which overlay, which image if not the released one, and the folder to write to.
OVERLAY ?= default
IMAGE ?= $(if $(VERSION),$(shell sed -n 's/^ *newName: //p' manifests/kustomization.yaml):v$(VERSION:v%=%))
DIST ?= dist

# For `make chaos`; a SCHEDULE is a file in place of a seed, such as one that has failed, without some of its lines.
CHAOS_SECONDS ?= 120
SEED ?=
SEEDS ?= 1
SCHEDULE ?=

# For `make bench`: which figures (all, or `scale,starts`), where the table is written as JSON, and further options
# (`--nodes 10,100`, `--help`).
BENCH ?=

# For `make mutants`: the files that are changed, or only what differs from this commit; and further options (`--jobs 2`,
# `--shard 1/8`, `--iterate`, ...). Changed is what decides: what only waits, sends and listens is left to the tests on a real
# control plane, which take minutes each.
MUTATED ?= api/src/**/*.rs agent/core/src/**/*.rs reconciler/core/src/**/*.rs webhook/src/verdict.rs webhook/src/verdict/*.rs
MUTANTS ?=
IN_DIFF ?=

# For `make demo`.
NODES ?= 5
MAX_CONCURRENT_UPDATE ?= 1
PODS_PER_NODE ?= 2
REBOOT_SECONDS ?= 3
EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC ?= 0
FAULT ?=
POOLS ?=
AGENTS ?=
DOWNLOAD_SECONDS ?= 1

.PHONY: help
help: ## This list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

.PHONY: build
build: programs plugin ## Builds the three programs as they ship, static, and kubectl's plugin kubectl-brupop (ARCH=arm64)

.PHONY: plugin
plugin: ## Builds kubectl's plugin kubectl-brupop alone, into target/plugin (ARCH=arm64)
	@$(FOR_ARCH)
	@$(ALONE) ARCH=$(ARCH) image/programs $(call folder,$(PLUGIN),$(ARCH)) brupop-cli
	@cp cli/kubectl_complete-brupop $(call folder,$(PLUGIN),$(ARCH))/

.PHONY: programs
programs:
	@$(FOR_ARCH)
	@$(ALONE) ARCH=$(ARCH) image/programs $(call folder,$(SHIPPED),$(ARCH))

.PHONY: build-all
build-all:
	@for arch in $(ARCHES); do $(MAKE) --no-print-directory build ARCH=$$arch; done

# Programs of which the agent is for arm64, and runs under qemu on a machine that is not.
.PHONY: emulated
emulated: programs
	@$(MAKE) --no-print-directory programs ARCH=arm64
	@mkdir -p $(TARGET)/emulated
	@ln -sf $(SHIPPED)/brupop-reconciler $(SHIPPED)/brupop-webhook $(TARGET)/emulated/
	@printf '#!/bin/sh\nexec qemu-aarch64-static %s "$$@"\n' $(call folder,$(SHIPPED),arm64)/brupop-agent >$(TARGET)/emulated/brupop-agent
	@chmod +x $(TARGET)/emulated/brupop-agent

.PHONY: container
container: ## Builds the image from Dockerfile, with docker, podman or buildah, whichever is there (IMAGE=...)
	@IMAGE=$(IMAGE) image/container

.PHONY: image
image: build-all ## Packs the programs built here into an image archive, dist/image.oci.tar, with buildah; needs no registry (ARCHES="amd64 arm64": an index of both; CHECK=true: checks what is in it and how it works, as root, and that two builds are equal)
	@.ci/tools image
	@IMAGE=$(IMAGE) image/archive $(DIST)/image.oci.tar $(foreach arch,$(ARCHES),$(call folder,$(SHIPPED),$(arch)))
	@$(if $(CHECK),testbed/build-control-plane >/dev/null)
	@$(if $(CHECK),$(ALONE) cargo build --locked --quiet --workspace --bin brupop-image)
	@$(if $(CHECK),$(ALONE) .ci/image $(SHIPPED) $(TARGET)/debug/brupop-image)
	@$(if $(filter true,$(CHECK)),ARCHES="$(ARCHES)" image/reproduce)

.PHONY: dist
dist: build-all yaml ## Writes the release into dist/: programs, plugin and list of packages for each of ARCHES, image, manifest, the plugin's manifest for krew, checksums (VERSION=..., RELEASE_URL=..., ARCHES="amd64 arm64")
	@.ci/tools image
	@IMAGE=$(IMAGE) RELEASE_URL=$(RELEASE_URL) image/dist $(DIST) $(foreach arch,$(ARCHES),$(call folder,$(SHIPPED),$(arch)) $(call folder,$(PLUGIN),$(arch)))

.PHONY: control-plane
control-plane: ## Builds the test bed's control plane, once, into a cache
	@testbed/build-control-plane >/dev/null

# The plugin as tests build it: as it ships, it would have nearly all dependencies compiled once more.
.PHONY: demo
demo: control-plane programs $(if $(filter arm64,$(AGENTS)),emulated) ## Updates a fleet of simulated hosts on a real control plane (NODES, MAX_CONCURRENT_UPDATE, FAULT=bad-image, POOLS=true, STAY=true, AGENTS=arm64, ...)
	@cargo build --locked --quiet --workspace --bin brupop-demo $(if $(filter true,$(STAY)),--bin kubectl-brupop)
	@BRUPOP_BINARIES=$(if $(filter arm64,$(AGENTS)),$(TARGET)/emulated,$(SHIPPED)) exec $(TARGET)/debug/brupop-demo --nodes $(NODES) \
	  --max-concurrent-update $(MAX_CONCURRENT_UPDATE) --pods-per-node $(PODS_PER_NODE) \
	  --reboot-seconds $(REBOOT_SECONDS) --exclude-from-lb-seconds $(EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC) \
	  --download-seconds $(DOWNLOAD_SECONDS) $(FAULT:%=--fault %) \
	  $(if $(filter true,$(POOLS)),--pools) $(if $(filter true,$(STAY)),--stay)

.PHONY: recording
recording: control-plane build ## Records what the plugin shows of the demo by pools, as a film in docs/pictures/ (needs Python; installs termtosvg below target/)
	@cargo build --locked --quiet --workspace --bin brupop-demo
	@[[ -x $(TARGET)/termtosvg/bin/termtosvg ]] || { python3 -m venv $(TARGET)/termtosvg && $(TARGET)/termtosvg/bin/pip install --quiet termtosvg==$(TERMTOSVG_VERSION); }
	@PATH=$(TARGET)/termtosvg/bin:$$PATH BRUPOP_BINARIES=$(SHIPPED) testbed/record $(TARGET)/debug/brupop-demo $(PLUGIN)/kubectl-brupop docs/pictures/brupop.svg

# Tests with control planes wait more than they compute: each of these two programs runs some at a time, which take 750 MB each.
# Both end at about the same time.
PLANES := fleets plane
THREADS ?= 6
tests-plane: THREADS := 3
OTHERS := $(wildcard */tests/*.rs */tests/*/main.rs)
OTHERS := $(filter-out $(PLANES),$(sort $(notdir $(patsubst %/main,%,$(basename $(OTHERS))))))
JOBS ?= 2
# The workspace each time: a part of it would have other features, and be compiled again.
TESTED := $(ALONE) cargo test --locked --workspace --quiet
# For `.ci/run`: runs what fails once more.
ONCE_MORE ?=
# What `make test` runs: each program with control planes, and the rest.
TESTS ?= $(PLANES) $(if $(FILTERS),,rest)
# The tests that depend most on Kubernetes' version.
FILTERS := $(if $(filter true,$(OLDEST)),crds:: migrating:: overlays:: policies:: update::)

.PHONY: test
ifneq ($(ARCH),$(NATIVE))
test:
	@$(FOR_ARCH)
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu" \
	  cargo test --locked --quiet --target aarch64-unknown-linux-gnu --lib -p brupop-api -p brupop-agent-core -p brupop-agent -p brupop-runtime -p brupop-webhook
else
test: control-plane ## Runs unit, property and table tests, the bounded model, and the tests on the real control plane (JOBS programs at a time, THREADS tests of each; TESTS=rest: those without clusters; OLDEST=true: those that depend most on Kubernetes' version, on the oldest one; ARCH=arm64: units under qemu)
	@.ci/tools prometheus
	@$(MAKE) --no-print-directory -j2 programs build-tests
	@$(if $(FILTERS),BRUPOP_KUBERNETES=oldest testbed/build-control-plane >/dev/null)
	@$(if $(FILTERS),BRUPOP_KUBERNETES=oldest) $(MAKE) --no-print-directory -j$(JOBS) --output-sync=target $(TESTS:%=tests-%)
endif

# Built beside the programs as they ship, which keep one core only when they are linked.
.PHONY: build-tests
build-tests:
	$(ALONE) cargo build --locked --workspace --bins
	$(TESTED) --no-run

.PHONY: $(PLANES:%=tests-%) tests-rest
$(PLANES:%=tests-%): tests-%:
	@$(ONCE_MORE) env BRUPOP_BINARIES=$(SHIPPED) $(TESTED) --test $* -- --test-threads=$(THREADS) $(FILTERS)
tests-rest:
	@$(TESTED) --lib --bins --examples
	@$(TESTED) --doc
	@env BRUPOP_BINARIES=$(SHIPPED) $(TESTED) $(OTHERS:%=--test %)

.PHONY: neighbours
neighbours: control-plane build ## Runs Karpenter, Flux's and Argo CD's engines and cert-manager beside a roll-out, and prints what held (builds them once, some ten minutes; then ten minutes; ONLY=karpenter)
	@testbed/build-neighbours >/dev/null
	@cargo build --locked --quiet --workspace --bin brupop-neighbours
	@BRUPOP_BINARIES=$(SHIPPED) exec $(TARGET)/debug/brupop-neighbours --plugin $(PLUGIN)/kubectl-brupop $(ONLY:%=--only %)

.PHONY: e2e
e2e: build control-plane ## Runs the image and the default overlay on real kubelets, in namespaces of this machine (six minutes; needs root; STAY=true)
	@.ci/tools e2e
	@cargo build --locked --quiet --workspace --bin brupop-e2e
	@$(TARGET)/debug/brupop-e2e --check
	@testbed/build-nodes >/dev/null
	@env -u IMAGE -u VERSION image/archive $(TARGET)/e2e.oci.tar $(SHIPPED) >/dev/null
	@exec $(TARGET)/debug/brupop-e2e --image $(TARGET)/e2e.oci.tar --plugin $(PLUGIN)/kubectl-brupop $(if $(filter true,$(STAY)),--stay)

.PHONY: chaos
chaos: control-plane programs ## Makes faults from a seed while 20 nodes are updated, and checks what must hold (CHAOS_SECONDS, SEED, SEEDS, SCHEDULE)
	@cargo build --locked --quiet --workspace --bin brupop-chaos
	@BRUPOP_BINARIES=$(SHIPPED) exec $(TARGET)/debug/brupop-chaos --to $(TARGET)/chaos \
	  $(if $(SCHEDULE),--schedule $(SCHEDULE),--seconds $(CHAOS_SECONDS) --seeds $(SEEDS) $(SEED:%=--seed %))

.PHONY: bench
bench: control-plane programs ## Measures what a user of the operator pays, and prints one table (25 minutes, and builds; ONLY=pass,roll-out,starts,scale, BENCH='--nodes 10,100')
	@cargo build --release --locked --quiet -p brupop-bench
	@BRUPOP_BINARIES=$(SHIPPED) exec $(TARGET)/release/brupop-bench $(ONLY:%=--only %) $(BENCH)

.PHONY: mutants
mutants: ## Changes what decides, place by place, and expects that a test fails each time (MUTATED=reconciler/core/src/decide/allocate.rs, IN_DIFF=commit; hours for all)
	@mkdir -p $(TARGET)/mutants
	@$(if $(IN_DIFF),git diff $(IN_DIFF) >$(TARGET)/mutants/diff)
	@PROPTEST_MAX_SHRINK_ITERS=0 PROPTEST_DISABLE_FAILURE_PERSISTENCE=true \
	  .ci/cargo-tool mutants $(CARGO_MUTANTS_VERSION) --output $(TARGET)/mutants $(MUTATED:%=--file '%') $(if $(IN_DIFF),--in-diff $(TARGET)/mutants/diff) $(MUTANTS)

.PHONY: model
model: ## Checks the model in larger worlds; prints states and time (some minutes)
	@cargo build --locked --quiet --workspace --bin brupop-model
	model/check

.PHONY: check
check: control-plane ## Checks format, lints, generated manifests, overlays, links, workflows, purity of the decisions, modules
	cargo fmt --all --check
	@$(MAKE) --no-print-directory lint manifests concepts
	@git diff --exit-code -- manifests docs/reference.md $(PROMETHEUS_RULE) || { echo "manifests/ does not match api/, or docs/reference.md the programs, or the PrometheusRule $(ALERTS): commit what 'make manifests' wrote" >&2; exit 1; }
	@kubectl=$$(testbed/build-control-plane)/kubectl; for overlay in kustomize/overlays{,/*/} examples/*/; do "$$kubectl" kustomize "$$overlay" >/dev/null; done
	@.ci/links
	@.ci/actionlint $(ACTIONLINT_VERSION)
	@.ci/pure-crates
	@.ci/modules

.PHONY: fmt
fmt: ## Formats the code
	cargo fmt --all

.PHONY: lint
lint: ## Runs clippy and rustdoc, warnings denied
	$(ALONE) cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(ALONE) cargo doc --locked --quiet --workspace --no-deps --document-private-items

.PHONY: deny
deny: ## Checks licences, bans and sources of our dependencies, and that each is used
	@.ci/cargo-tool deny $(CARGO_DENY_VERSION) check --hide-inclusion-graph bans licenses sources
	@.ci/cargo-tool machete $(CARGO_MACHETE_VERSION)

.PHONY: manifests
manifests: ## Generates the custom resource definitions from api/, the tables of docs/reference.md, and the PrometheusRule of the alerts
	cargo run --locked --quiet --example crds -- manifests docs/reference.md
	cargo run --locked --quiet --example settings -- docs/reference.md
	cargo run --locked --quiet --example reasons -- docs/reference.md
	@{ sed '/^spec:/q' $(PROMETHEUS_RULE); sed -n '/^groups:/,$$p' $(ALERTS) | sed 's/^./  &/'; } >$(TARGET)/rule.yaml
	@cp $(TARGET)/rule.yaml $(PROMETHEUS_RULE)

.PHONY: yaml
yaml: ## Writes the release manifest, dist/bottlerocket-update-operator.yaml (OVERLAY=default, VERSION= or IMAGE=), with kubectl or kustomize, or the test bed's kubectl if neither is there
	@mkdir -p $(DIST)
	@draft=$(DIST)/.draft.yaml; trap 'rm -f "$$draft"' EXIT; \
	  if command -v kubectl >/dev/null; then render="kubectl kustomize"; \
	  elif command -v kustomize >/dev/null; then render="kustomize build"; \
	  else render="$$(testbed/build-control-plane)/kubectl kustomize"; fi; \
	  $$render kustomize/overlays/$(OVERLAY) | sed -E '$(if $(IMAGE),s|^( +image: ).*|\1$(IMAGE)|)' >"$$draft"; \
	  mv "$$draft" $(DIST)/bottlerocket-update-operator.yaml

.PHONY: kind-cluster
kind-cluster: ## Makes a kind cluster named brupop. This and the next two need Docker and kind, so CI runs none of them
	kind create cluster --name brupop

.PHONY: kind-load
kind-load: ## Builds the image of these sources, and loads it as brupop:dev onto the cluster's nodes
	@$(MAKE) --no-print-directory container IMAGE=brupop:dev
	kind load docker-image brupop:dev --name brupop

.PHONY: kind-rollout
kind-rollout: ## Applies the overlay dev with that image, and opts the nodes in; their agents wait, as no Bottlerocket runs there
	kubectl --context kind-brupop apply -k kustomize/overlays/dev
	kubectl --context kind-brupop label nodes --all --overwrite bottlerocket.aws/updater-interface-version=2.0.0
	kubectl --context kind-brupop -n brupop-bottlerocket-aws rollout restart \
	  deployment/brupop-webhook deployment/brupop-reconciler daemonset/brupop-agent
	kubectl --context kind-brupop -n brupop-bottlerocket-aws rollout status --timeout=2m deployment/brupop-webhook
	kubectl --context kind-brupop -n brupop-bottlerocket-aws rollout status --timeout=2m deployment/brupop-reconciler

.PHONY: concepts
concepts: control-plane ## Counts what users meet: variables, objects, alerts, reasons, components, policies, lines that ship; more than CONCEPTS says is an error
	@KUBECTL=$$(testbed/build-control-plane)/kubectl .ci/concepts $(CONCEPTS)

.PHONY: get-nodes-status
get-nodes-status: ## Prints the labelled nodes of your cluster: what they run, and where their updates are (KUBECTL, NAMESPACE)
	@KUBECTL='$(KUBECTL)' NAMESPACE='$(NAMESPACE)' reconciler/get-nodes-status

.PHONY: clean
clean: ## Removes what cargo built; the control plane's cache stays (rm -r ~/.cache/brupop-testbed)
	cargo clean
