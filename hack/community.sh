#!/usr/bin/env bash
# Copies all releases into dist/community/operators/redis-operator, in the shape of
# the repositories community-operators and community-operators-prod: one folder for
# each version, and ci.yaml.
set -euo pipefail
cd "$(dirname "$0")/.."
out=dist/community/operators/redis-operator
rm -rf "$out"
mkdir -p "$out"
cp config/community/ci.yaml "$out/ci.yaml"
for bundle in releases/* bundle; do
	version=$(sed -n 's/^  version: //p' "$bundle/manifests/redis-operator.clusterserviceversion.yaml")
	[ ! -e "$out/$version" ] || { echo "community-bundle: $bundle is $version, which there is already: raise BUNDLE_VERSION and run make bundle" >&2; exit 1; }
	mkdir "$out/$version"
	cp -r "$bundle/manifests" "$bundle/metadata" "$bundle/tests" "$out/$version"
done
echo "community-bundle: $out holds $(cd "$out" && echo */)"
