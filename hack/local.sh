# shellcheck shell=bash
# Sourced by quickstart.sh and e2e.sh: the operator on a local Kubernetes, with
# progress. Sets devcluster, KUBECONFIG and kubectl.

devcluster=bin/devcluster

step() { printf '\n== [%3d s] %s\n' "$SECONDS" "$*"; }

fail() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# local_up [FLAG]... starts the local Kubernetes, or finds it running.
local_up() {
	go build -C hack/devcluster -o "$PWD/$devcluster" .
	"$devcluster" up "$@"
	KUBECONFIG=$("$devcluster" kubeconfig "$@")
	export KUBECONFIG
	command -v kubectl >/dev/null || PATH="$(dirname "$("$devcluster" binaries kubectl)"):$PATH"
}

# deploy_operator [FLAG]... builds the manager, loads it as an image and deploys
# it as anywhere. The tag follows the content, so that a new build is a new image.
deploy_operator() {
	make --no-print-directory build
	local image
	image="redis-operator:dev-$(sha256sum bin/manager | cut -c 1-12)"
	"$devcluster" load "$image" --binary bin/manager "$@"
	make --no-print-directory deploy IMG="$image"
	kubectl -n redis-operator-system rollout status deployment/redis-operator-controller-manager --timeout=120s
}

# wait_running NAME SECONDS follows a RedisCluster until it is Running and whole.
wait_running() {
	local name=$1 deadline=$((SECONDS + $2)) line last=""
	while :; do
		line=$(kubectl get rediscluster "$name" -o jsonpath='{.status.phase} {.status.readyReplicas}/{.spec.replicas} ready: {.status.conditions[?(@.type=="Ready")].message}')
		if [ "$line" != "$last" ]; then
			printf '   [%3d s] %s\n' "$SECONDS" "$line"
			last=$line
		fi
		[[ $line == Running* ]] && return
		[ "$SECONDS" -lt "$deadline" ] || {
			explain
			fail "$name is not Running after $2 s"
		}
		sleep 1
	done
}

# explain prints what there is to see when something did not come up.
explain() {
	echo "--- RedisClusters" >&2
	kubectl describe redisclusters -A >&2 || true
	echo "--- Pods" >&2
	kubectl get pods -A -o wide >&2 || true
	echo "--- Events" >&2
	kubectl get events -A --sort-by=.lastTimestamp >&2 || true
	echo "--- the manager's log" >&2
	kubectl -n redis-operator-system logs deployment/redis-operator-controller-manager --tail=300 >&2 || true
}
