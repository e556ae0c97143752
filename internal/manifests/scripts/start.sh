#!/bin/sh
# Starts the server of one Pod. Writes the ACL file and the part of the
# configuration that depends on the Pod, then becomes the server.
#
# In the Pod only ENGINE and POD_IP are set, and AUTH_DISABLED if clients need
# no password. The other variables have the Pod's paths as their defaults.
set -eu
# What is written here holds passwords and their hashes.
umask 077
# The first process of a container ignores signals that it does not trap.
trap 'exit 143' TERM
nl='
'

: "${ENGINE:=redis}" "${POD_IP:=}" "${AUTH_DISABLED:=false}" "${PORT:=6379}"
: "${DATA_DIR:=/data}" "${RUN_DIR:=/run/redis-operator}" "${CONFIG_DIR:=/etc/redis-operator/config}"
: "${OPERATOR_DIR:=/etc/redis-operator/operator}" "${AUTH_DIR:=/etc/redis-operator/auth}"

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
	set -- "$OPERATOR_DIR/password"
	password_file "$1" "the operator"
	login=nopass
	if [ "$AUTH_DISABLED" != true ]; then
		password_file "$AUTH_DIR/password" "the default user"
		set -- "$1" "$AUTH_DIR/password"
	fi
	sums=$(sha256sum "$@") || fail "sha256sum failed"
	if [ $# = 2 ]; then
		login=${sums#*"$nl"}
		login="#${login%% *}"
	fi
	printf 'user operator on #%s ~* &* +@all\nuser default on %s ~* &* +@all\n' \
		"${sums%% *}" "$login" >"$RUN_DIR/users.acl"
}

# write_config writes what depends on this Pod. It comes after the shared file,
# so it wins.
write_config() {
	[ -n "$POD_IP" ] || fail "POD_IP is not set"
	[ -r "$CONFIG_DIR/redis.conf" ] || fail "$CONFIG_DIR/redis.conf cannot be read"
	IFS= read -r password <"$OPERATOR_DIR/password" || :
	case $password in
	*[!A-Za-z0-9]*) fail "the password of the operator holds more than letters and digits" ;;
	*) ;;
	esac
	printf '%s\n' \
		"include $CONFIG_DIR/redis.conf" \
		"port $PORT" \
		"dir $DATA_DIR" \
		"aclfile $RUN_DIR/users.acl" \
		"masteruser operator" \
		"masterauth $password" \
		"cluster-announce-ip $POD_IP" >"$RUN_DIR/redis.conf"
	password=
}

write_users
write_config
exec "$ENGINE-server" "$RUN_DIR/redis.conf"
