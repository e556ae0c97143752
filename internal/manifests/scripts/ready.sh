#!/bin/sh
# Tells whether this node is ready: it has loaded its data, and it is a primary
# or a replica whose link is up. It prints the reason when it is not. Disruption
# budgets count ready Pods, so an answer to PING would not be enough.
#
# usage: ready.sh [root [port]], as start.sh
set -u
: "${ENGINE:?}" "${POD_IP:?}"
root=${1-}
port=${2:-6379}

not_ready() {
	echo "not ready: $1"
	exit 1
}

IFS= read -r REDISCLI_AUTH <"$root/etc/redis-operator/operator/password" || :
export REDISCLI_AUTH
# One call for both questions. It is asked by the Pod's address, because a Pod
# may have no 127.0.0.1.
info=$(timeout 2 "$ENGINE-cli" -h "$POD_IP" -p "$port" --user operator INFO replication persistence 2>&1) ||
	not_ready "the server does not answer: $info"

case $info in
*"
loading:0"*) ;;
*"
loading:1"*) not_ready "loading its data" ;;
*) not_ready "$info" ;;
esac
case $info in
*"
role:master"*) ;;
*"
master_link_status:up"*) ;;
*) not_ready "the link to the primary is down" ;;
esac
