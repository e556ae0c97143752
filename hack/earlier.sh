#!/usr/bin/env bash
# Builds the manager of an earlier release from its tag, or from the commit if it has
# none, and prints the path of the binary.
#   earlier.sh TAG COMMIT
set -euo pipefail
cd "$(dirname "$0")/.."
commit=$(git rev-parse --quiet --verify "$1^{commit}" || git rev-parse --quiet --verify "$2^{commit}") || {
	echo "earlier.sh: neither $1 nor $2 is in this clone: git fetch --unshallow --tags" >&2
	exit 1
}
out=$PWD/dist/earlier/$1
mkdir -p "$out"
git archive "$commit" | tar -x -C "$out"
(cd "$out" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$1" -o manager .) >&2
echo "$out/manager"
