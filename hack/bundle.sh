#!/usr/bin/env bash
# Makes bundle/ and bundle.Dockerfile from config/ and the markers in api/v1. The
# same input gives the same bytes, whenever it runs.
#   bundle.sh SDK VERSION IMAGE SCORECARD_IMAGE CHANNELS DEFAULT_CHANNEL
set -euo pipefail
cd "$(dirname "$0")/.."
sdk=$1 version=$2 image=$3 scorecard_image=$4 channels=$5 default_channel=$6
kustomize=(go tool -modfile="$PWD/hack/tools/go.mod" kustomize)
base=config/manifests/bases/redis-operator.clusterserviceversion.yaml
csv=bundle/manifests/redis-operator.clusterserviceversion.yaml

# The descriptors of the base follow the markers, its icon the drawing.
"$sdk" generate kustomize manifests -q --interactive=false
icon=$(base64 -w0 config/manifests/icon.svg)
sed -i "s|^\(  - base64data:\).*|\1 $icon|" "$base"

# An overlay sets the image and leaves the tree as it is.
overlay=dist/bundle
mkdir -p "$overlay"
cp config/default/operator_image.yaml config/manifests/container_image.yaml "$overlay"
cat >"$overlay/kustomization.yaml" <<'YAML'
resources: [../../config/manifests]
replacements: [{path: operator_image.yaml}, {path: container_image.yaml}]
YAML
(cd "$overlay" && "${kustomize[@]}" edit set image "redis-operator=$image")

# The account that reads the metrics is OLM's to make, as the manager's: a binding
# among the manifests would have to name the namespace.
rm -rf bundle/manifests bundle/metadata bundle/tests
"${kustomize[@]}" build "$overlay" |
	"$sdk" generate bundle -q --overwrite --version "$version" --channels "$channels" --default-channel "$default_channel" \
		--extra-service-accounts redis-operator-metrics-reader

# The time at which the base was written, not that of this run.
created=$(sed -n 's/^    createdAt: //p' "$base")
sed -i "s|^    createdAt: .*|    createdAt: $created|" "$csv"
sed -i "s|image: redis-operator-scorecard:dev\$|image: $scorecard_image|" bundle/tests/scorecard/config.yaml
"$sdk" bundle validate ./bundle -b none
"$sdk" bundle validate ./bundle -b none --select-optional suite=operatorframework
