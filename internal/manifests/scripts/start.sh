#!/bin/sh
# Starts the server of one Pod. Writes the ACL file and the part of the
# configuration that depends on the Pod, then becomes the server.
#
# usage: start.sh [root [port]], for tests: where the Pod's volumes are, and the
# port. The Pod sets ENGINE, POD_IP and AUTH_DISABLED, and what guard.sh needs.
set -eu
# What is written here holds passwords and their hashes.
umask 077
# The first process of a container ignores signals that it does not trap.
trap 'exit 143' TERM
nl='
'

root=${1-}
port=${2:-6379}
run=$root/run/redis-operator
etc=$root/etc/redis-operator

fail() {
	echo "start: $1" >&2
	exit 1
}

# password_file makes sure that a password is there: an empty one would let
# everybody in, or nobody.
password_file() {
	[ -r "$1" ] || fail "the password of $2 is missing: $1 cannot be read"
	[ -s "$1" ] || fail "the password of $2 is empty: $1"
}

# write_users writes the ACL file. It holds SHA-256 sums of the exact bytes of
# the password files; both come from one call, because each process that is
# started here delays the server.
write_users() {
	set -- "$etc/operator/password"
	password_file "$1" "the operator"
	login=nopass
	if [ "${AUTH_DISABLED:-false}" != true ]; then
		password_file "$etc/auth/password" "the default user"
		set -- "$1" "$etc/auth/password"
	fi
	sums=$(sha256sum "$@") || fail "sha256sum failed"
	if [ $# = 2 ]; then
		login=${sums#*"$nl"}
		login="#${login%% *}"
	fi
	printf 'user operator on #%s ~* &* +@all\nuser default on %s ~* &* +@all\n' \
		"${sums%% *}" "$login" >"$run/users.acl"
}

# write_config writes what depends on this Pod. It comes after the shared file,
# so it wins.
write_config() {
	[ -r "$etc/config/redis.conf" ] || fail "$etc/config/redis.conf cannot be read"
	IFS= read -r password <"$etc/operator/password" || :
	case $password in
	*[!A-Za-z0-9]*) fail "the password of the operator holds more than letters and digits" ;;
	*) ;;
	esac
	printf '%s\n' \
		"include $etc/config/redis.conf" \
		"port $port" \
		"dir $root/data" \
		"aclfile $run/users.acl" \
		"masteruser operator" \
		"masterauth $password" \
		"cluster-announce-ip $POD_IP" >"$run/redis.conf"
	password=
}

[ -n "${ENGINE:-}" ] || fail "ENGINE is not set"
[ -n "${POD_IP:-}" ] || fail "POD_IP is not set"
write_users
write_config
if [ -s "$root/data/nodes.conf" ]; then
	# In the background, so that the trap does not have to wait for it.
	sh "$etc/config/guard.sh" "$root" "$port" &
	guard=$!
	trap 'kill "$guard" || :; exit 143' TERM
	wait "$guard" || exit $?
fi
exec "$ENGINE-server" "$run/redis.conf"
