#!/usr/bin/env bash
# Regenerates all that is generated and fails if that changes the tree: a
# modified file, and a new one too.
set -euo pipefail
cd "$(dirname "$0")/.."

# snapshot prints a hash and the name of every file that git does not ignore.
snapshot() {
	git ls-files -co --exclude-standard -z | sort -zu |
		while IFS= read -r -d '' f; do [ -f "$f" ] && printf '%s\0' "$f"; done | xargs -0 sha256sum
}

before=$(snapshot)
make --no-print-directory manifests generate fmt
drift=0
while IFS= read -r file; do
	if ! (cd "$(dirname "$file")" && go mod tidy -diff); then
		echo "verify: $file is not tidy: run 'go mod tidy' there" >&2
		drift=1
	fi
done < <(git ls-files -co --exclude-standard 'go.mod' '*/go.mod')
changed=$(diff <(printf '%s\n' "$before") <(snapshot) | sed -n 's/^[<>] [0-9a-f]* *//p' | sort -u || true)
if [ -n "$changed" ]; then
	echo "verify: these files were not up to date; they are now, commit them:" >&2
	printf '%s\n' "$changed" | sed 's/^/  /' >&2
	drift=1
fi
# A generated file that git does not know would be missing in a clone.
unknown=$(git ls-files -o --exclude-standard -- config/crd/bases config/rbac 'api/*/zz_generated*')
if [ -n "$unknown" ]; then
	echo "verify: generated, and not in git:" >&2
	printf '%s\n' "$unknown" | sed 's/^/  /' >&2
	drift=1
fi
[ "$drift" = 0 ] && echo "verify: generated files, formatting and modules are up to date"
exit "$drift"
