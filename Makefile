# Every target is listed by `make help`. Tools are pinned in hack/tools (Go
# modules) and built on first use; nothing is fetched as a binary.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# IMG is the operator's image, for docker-build, docker-push and deploy.
IMG ?= redis-operator:dev
# VERSION is compiled into the manager and shown by `manager --version`.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# CONTAINER_TOOL builds and pushes images: docker or podman.
CONTAINER_TOOL ?= docker
# KUBECTL is the one on PATH, else the one that hack/devcluster builds.
KUBECTL ?= $(shell command -v kubectl 2>/dev/null || (cd hack/devcluster && go run . binaries kubectl))
# KUBEBUILDER_ASSETS holds etcd and kube-apiserver for the tests. Left empty,
# hack/devcluster builds both from Go modules, once, into its cache.
KUBEBUILDER_ASSETS ?=
# GO_TEST_FLAGS go to the `go test` of this module.
GO_TEST_FLAGS ?= -race -timeout=20m
# ARGS go to the benchmarks: `make bench ARGS="ready rest"`.
ARGS ?= ready rest

LDFLAGS := -s -w -X main.version=$(VERSION)
CONTROLLER_GEN := go tool -modfile=hack/tools/go.mod controller-gen
KUSTOMIZE := go tool -modfile=hack/tools/go.mod kustomize
GOLANGCI_VERSION := $(shell sed -n 's|^\s*github.com/golangci/golangci-lint/v2 \(v[^ ]*\).*|\1|p' hack/tools/golangci-lint/go.mod)
GOLANGCI_LINT := bin/golangci-lint-$(GOLANGCI_VERSION)
OPERATOR_SDK_VERSION := v1.42.3
# OPM_RUN runs a program of hack/tools/opm; the tags leave out C libraries that are
# not needed here.
OPM_RUN := cd hack/tools/opm && go run -tags=json1,containers_image_openpgp
OPM := $(OPM_RUN) github.com/operator-framework/operator-registry/cmd/opm
OPM_IMG := quay.io/operator-framework/opm:$(shell sed -n 's|.*github.com/operator-framework/operator-registry \(v[^ ]*\).*|\1|p' hack/tools/opm/go.mod)

# OPERATOR_SDK generates the bundle. It is no Go module that could be pinned here.
OPERATOR_SDK ?= operator-sdk
# BUNDLE_VERSION is the release that bundle/ is made for.
BUNDLE_VERSION ?= 0.2.0
# IMAGE_REPOSITORY is where releases are published.
IMAGE_REPOSITORY ?= ghcr.io/example/redis-operator
# BUNDLE_IMG is the image of the bundle.
BUNDLE_IMG ?= $(IMAGE_REPOSITORY)-bundle:v$(BUNDLE_VERSION)
# SCORECARD_IMG is the image of the project's own scorecard tests.
SCORECARD_IMG ?= $(IMAGE_REPOSITORY)-scorecard:v$(BUNDLE_VERSION)
# CATALOG_IMG is the image of the catalog.
CATALOG_IMG ?= $(IMAGE_REPOSITORY)-catalog:v$(BUNDLE_VERSION)
# The bundle's channels are those that catalog/ has it in, by major and by minor.
minor := $(basename $(BUNDLE_VERSION))
comma := ,
BUNDLE_CHANNELS ?= $(subst $() ,$(comma),$(foreach c,candidate fast stable,$(c)-v$(basename $(minor)) $(c)-v$(minor)))
BUNDLE_DEFAULT_CHANNEL ?= stable-v$(minor)
# The bundle holds the release's image unless IMG is given, as IMG=…@sha256:…
BUNDLE_OPERATOR_IMG = $(if $(filter file,$(origin IMG)),$(IMAGE_REPOSITORY):v$(BUNDLE_VERSION),$(IMG))

##@ General

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*##/ {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Development

.PHONY: manifests
manifests: ## Generate the CRDs and the manager's roles from the Go markers.
	$(CONTROLLER_GEN) crd paths=./api/... output:crd:dir=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=manager-role paths=./controllers/... output:rbac:dir=config/rbac
	$(CONTROLLER_GEN) rbac:roleName=manager-cluster-role,fileName=cluster_role.yaml paths=. output:rbac:dir=config/rbac

.PHONY: generate
generate: ## Generate the deep-copy methods of the API types, and docs/metrics.md.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/...
	go run ./hack/metricsdoc >docs/metrics.md.new && mv docs/metrics.md.new docs/metrics.md

.PHONY: fmt
fmt: ## Format the Go code.
	gofmt -l -w $$(git ls-files -co --exclude-standard '*.go')

.PHONY: vet
vet: ## Run go vet over all modules.
	go vet ./...
	cd hack/devcluster && go vet ./...
	cd test/alerts && go vet ./...
	cd hack/tools/opm && go vet -tags=json1,containers_image_openpgp ./...

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run golangci-lint over all modules.
	$(GOLANGCI_LINT) run ./...
	cd hack/devcluster && $(CURDIR)/$(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd test/alerts && $(CURDIR)/$(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd hack/tools/opm && $(CURDIR)/$(GOLANGCI_LINT) run --config $(CURDIR)/.golangci.yml --build-tags=json1,containers_image_openpgp ./...

.PHONY: verify
verify: ## Fail if generated files, formatting or go.mod files are not up to date.
	@hack/verify.sh

.PHONY: test
test: ## Install what the tests need, then run all but e2e, with a real API server, real Redis and a real S3 server.
	@hack/install-packages.sh redis-server strace
	assets="$(KUBEBUILDER_ASSETS)"; \
	if [ -z "$$assets" ]; then assets=$$(hack/assets.sh); fi; \
	versitygw="$(VERSITYGW)"; \
	if [ -z "$$versitygw" ]; then versitygw=$$(hack/versitygw.sh); fi; \
	export KUBEBUILDER_ASSETS="$$assets" VERSITYGW="$$versitygw"; \
	go test $(GO_TEST_FLAGS) $$(go list ./... | grep -v -E '/test/(e2e|bench|latency)(/|$$)') && \
	go test $(GO_TEST_FLAGS) ./test/latency # alone: it tells what is slow, and the others make the machine slow
	cd hack/devcluster && go test ./...
	cd hack/devcluster/binaries/provisioner && go test ./...
	cd test/alerts && go test ./...

.PHONY: test-e2e
test-e2e: ## Run the end-to-end tests on a three-node devcluster of their own (KEEP=1 keeps it).
	hack/e2e.sh

.PHONY: test-e2e-full
test-e2e-full: ## The same with the long cases: scaling, rolls, kills in a row.
	TEST_FLAGS="-tags full -timeout 120m" hack/e2e.sh

.PHONY: bench
bench: ## Print the figures of docs/benchmarks.md, measured on a devcluster (ARGS="ready rest").
	@test -d test/bench || { echo "bench: test/bench is not in this tree yet"; exit 1; }
	go run ./test/bench $(ARGS)

##@ Try it

.PHONY: quickstart
quickstart: ## From nothing to a running Redis Cluster on a local Kubernetes (Linux, root).
	@hack/quickstart.sh

.PHONY: run
run: manifests generate ## Run the manager on this machine against the cluster of KUBECONFIG.
	@$(reachable)
	go run -ldflags "$(LDFLAGS)" . --leader-elect=false --metrics-bind-address=0 --zap-devel

##@ Build

.PHONY: build
build: ## Build the manager, static, into bin/manager.
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o bin/manager .

.PHONY: kubectl-redis
kubectl-redis: ## Build the kubectl plugin and its completion into bin/; put both on PATH.
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o bin/kubectl-redis ./cmd/kubectl-redis
	install -m 755 cmd/kubectl-redis/kubectl_complete-redis bin/

.PHONY: docker-build
docker-build: ## Build the operator's image IMG with CONTAINER_TOOL.
	@$(engine)
	$(CONTAINER_TOOL) build --build-arg VERSION=$(VERSION) -t $(IMG) .

.PHONY: docker-push
docker-push: ## Push the operator's image IMG.
	@$(engine)
	$(CONTAINER_TOOL) push $(IMG)

##@ OLM

.PHONY: bundle
bundle: manifests ## Generate the OLM bundle of BUNDLE_VERSION (needs operator-sdk, on PATH or as OPERATOR_SDK).
	@command -v $(OPERATOR_SDK) >/dev/null || { echo "bundle: operator-sdk $(OPERATOR_SDK_VERSION) is not on PATH, and OPERATOR_SDK does not name it. Get it from https://github.com/operator-framework/operator-sdk/releases/tag/$(OPERATOR_SDK_VERSION), or build it: git clone -b $(OPERATOR_SDK_VERSION) https://github.com/operator-framework/operator-sdk && make -C operator-sdk install"; exit 1; }
	@$(OPERATOR_SDK) version | grep -q '"$(OPERATOR_SDK_VERSION)"' || { echo "bundle: this takes operator-sdk $(OPERATOR_SDK_VERSION); there is $$($(OPERATOR_SDK) version)"; exit 1; }
	hack/bundle.sh $(OPERATOR_SDK) $(BUNDLE_VERSION) $(BUNDLE_OPERATOR_IMG) $(SCORECARD_IMG) $(BUNDLE_CHANNELS) $(BUNDLE_DEFAULT_CHANNEL)

.PHONY: bundle-build
bundle-build: ## Build the bundle's image BUNDLE_IMG with CONTAINER_TOOL.
	@$(engine)
	$(CONTAINER_TOOL) build -f bundle.Dockerfile -t $(BUNDLE_IMG) .

.PHONY: bundle-push
bundle-push: ## Push the bundle's image BUNDLE_IMG.
	@$(engine)
	$(CONTAINER_TOOL) push $(BUNDLE_IMG)

.PHONY: catalog
catalog: ## Render the file-based catalog from its template, bundle/ and releases/, and validate it.
	@mkdir -p dist/catalog catalog/redis-operator
	sed 's|ghcr.io/example/redis-operator-bundle|$(IMAGE_REPOSITORY)-bundle|' catalog/template.yaml >dist/catalog/template.yaml
	$(OPM_RUN) . $(CURDIR)/dist/catalog/template.yaml '$(IMAGE_REPOSITORY)-bundle:v{{.Version}}' $(CURDIR)/bundle $(CURDIR)/releases/* >$(CURDIR)/dist/catalog/catalog.yaml
	cp dist/catalog/catalog.yaml catalog/redis-operator/catalog.yaml
	$(OPM) validate $(CURDIR)/catalog/redis-operator
	rm -f catalog/redis-operator.Dockerfile
	$(OPM) generate dockerfile $(CURDIR)/catalog/redis-operator --base-image $(OPM_IMG) --builder-image $(OPM_IMG)

.PHONY: catalog-build
catalog-build: ## Build the catalog's image CATALOG_IMG with CONTAINER_TOOL.
	@$(engine)
	$(CONTAINER_TOOL) build -f catalog/redis-operator.Dockerfile -t $(CATALOG_IMG) catalog

.PHONY: catalog-push
catalog-push: ## Push the catalog's image CATALOG_IMG.
	@$(engine)
	$(CONTAINER_TOOL) push $(CATALOG_IMG)

.PHONY: scorecard-build
scorecard-build: ## Build the image SCORECARD_IMG of the project's own scorecard tests with CONTAINER_TOOL.
	@$(engine)
	$(CONTAINER_TOOL) build -f test/scorecard/Dockerfile -t $(SCORECARD_IMG) .

.PHONY: scorecard-push
scorecard-push: ## Push the image SCORECARD_IMG.
	@$(engine)
	$(CONTAINER_TOOL) push $(SCORECARD_IMG)

.PHONY: community-bundle
community-bundle: ## Put all releases into dist/community, in the shape that community-operators takes.
	@hack/community.sh

##@ Deploy

.PHONY: install
install: manifests ## Install the CRD into the cluster of KUBECONFIG.
	@$(reachable)
	$(KUSTOMIZE) build config/crd | $(KUBECTL) apply --server-side -f -

.PHONY: uninstall
uninstall: ## Remove the CRD, and with it every RedisCluster.
	@$(reachable)
	$(KUSTOMIZE) build config/crd | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: deploy
deploy: manifests ## Deploy the operator with the image IMG.
	@$(reachable)
	$(overlay) | $(KUBECTL) apply --server-side -f -

.PHONY: undeploy
undeploy: ## Remove the operator and the CRD, and with it every RedisCluster.
	@$(reachable)
	$(overlay) | $(KUBECTL) delete --ignore-not-found -f -

# overlay prints config/default with the image IMG, leaving the tree as it is.
define overlay
mkdir -p dist/deploy && cp config/default/operator_image.yaml dist/deploy/ && printf 'resources: [../../config/default]\nreplacements: [{path: operator_image.yaml}]\n' >dist/deploy/kustomization.yaml && (cd dist/deploy && go tool -modfile=$(CURDIR)/hack/tools/go.mod kustomize edit set image redis-operator=$(IMG)) && $(KUSTOMIZE) build dist/deploy
endef

# reachable fails in one line when there is no cluster to talk to.
define reachable
$(KUBECTL) get --raw /readyz --request-timeout=10s >/dev/null 2>&1 || { echo "$@: no Kubernetes answers: set KUBECONFIG to a cluster's, or run 'make quickstart' for a local one"; exit 1; }
endef

# engine fails in one line when there is no container engine.
define engine
$(CONTAINER_TOOL) info >/dev/null 2>&1 || { echo "$@: no container engine answers '$(CONTAINER_TOOL) info': start one or set CONTAINER_TOOL; 'make quickstart' needs none"; exit 1; }
endef

$(GOLANGCI_LINT): hack/tools/golangci-lint/go.mod
	@echo "building golangci-lint $(GOLANGCI_VERSION), once"
	cd hack/tools/golangci-lint && go build -ldflags "-s -w -X main.version=$(GOLANGCI_VERSION)" -o $(CURDIR)/$(GOLANGCI_LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
