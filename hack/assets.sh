#!/usr/bin/env bash
# Prints a folder that holds etcd and kube-apiserver, as the tests want it in
# KUBEBUILDER_ASSETS. hack/devcluster builds both on the first call (minutes).
set -euo pipefail
cd "$(dirname "$0")/.."
paths=$(cd hack/devcluster && go run . binaries etcd kube-apiserver)
mkdir -p bin/assets
for path in $paths; do
	ln -sfn "$path" "bin/assets/$(basename "$path")"
done
echo "$PWD/bin/assets"
