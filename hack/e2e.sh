#!/usr/bin/env bash
# The end-to-end tests on a three-node Kubernetes of their own, which is removed
# afterwards, also when they fail. KEEP=1 keeps it. TEST_FLAGS go to go test.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/local.sh

[ -d test/e2e ] || fail "test/e2e is not in this tree yet"

finish() {
	local code=$?
	[ "$code" = 0 ] || explain
	if [ -n "${KEEP:-}" ]; then
		echo "kept: export KUBECONFIG=${KUBECONFIG:-}; to remove it: $devcluster down --name e2e"
	else
		"$devcluster" down --name e2e
	fi
	exit "$code"
}

step "local Kubernetes with three nodes"
trap finish EXIT
local_up --name e2e --nodes 3

step "operator, built from this source"
deploy_operator --name e2e

if [[ "${TEST_FLAGS:-}" == *full* ]]; then
	step "operator of the release before, for the update"
	"$devcluster" load redis-operator:v0.1.0 --binary "$(hack/earlier.sh v0.1.0 fc39ecb165ba0e9888ba964be60aa3ae7dc6e2da)" --name e2e
fi

step "S3 server, for the backups"
versitygw=$(hack/versitygw.sh)
"$devcluster" load versitygw:e2e --binary "$versitygw" --name e2e

step "scorecard's tests, in the image that they have everywhere"
CGO_ENABLED=0 go build -trimpath -o bin/scorecard ./test/scorecard
"$devcluster" load redis-operator-scorecard:e2e --binary bin/scorecard --entrypoint /scorecard --name e2e

step "tests"
# shellcheck disable=SC2086 # the flags are several words
go test ./test/e2e/... -count=1 -v -timeout 40m ${TEST_FLAGS:-}
