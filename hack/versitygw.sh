#!/usr/bin/env bash
# Prints the path of versitygw, an S3 server for the tests. It is pinned in
# hack/tools/versitygw and built on the first call (minutes), into bin/.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's|^\s*github.com/versity/versitygw \(v[^ ]*\).*|\1|p' hack/tools/versitygw/go.mod)
program=$PWD/bin/versitygw-$version
if [ ! -x "$program" ]; then
	mkdir -p bin
	# Of several that want it, one builds.
	exec 9>"$program.lock"
	flock 9
	if [ ! -x "$program" ]; then
		echo "building versitygw $version, once" >&2
		(cd hack/tools/versitygw && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$program.new" github.com/versity/versitygw/cmd/versitygw)
		mv "$program.new" "$program"
	fi
	rm -f "$program.lock"
fi
echo "$program"
