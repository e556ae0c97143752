#!/usr/bin/env bash
# Makes sure that the named Debian packages are installed, without starting any
# service of theirs. Where it cannot, it says in one line what is missing.
set -euo pipefail

missing=()
for package in "$@"; do
	# A binary of the package's name counts, however it came to the machine.
	command -v "$package" >/dev/null || dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
[ "${#missing[@]}" = 0 ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "missing: ${missing[*]}; install it first (Debian, Ubuntu: sudo apt-get install ${missing[*]})" >&2
	exit 1
fi
echo "installing ${missing[*]}" >&2
# Debian starts a service when its package is installed, unless policy-rc.d says no.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod +x "$policy"
	trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
