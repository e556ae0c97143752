#!/bin/sh
# Runs before the server of a Pod is told to end. If it is a primary with slots,
# it has a replica take over gracefully: no write is lost, and clients wait a
# few milliseconds. It ends when this node has become a replica, when there is
# nobody to hand over to, and in any case after the given seconds (8), three
# questions of a second each, and a second for the clients.
#
# It never forces: a forced failover does not look at the data, and the operator
# must be the only one that decides on it.
#
# usage: prestop.sh [root [port [seconds]]], as start.sh
set -u
: "${ENGINE:?}" "${POD_IP:?}"
root=${1-}
my_port=${2:-6379}
seconds=${3:-8}
nl='
'

IFS= read -r REDISCLI_AUTH <"$root/etc/redis-operator/operator/password" || :
export REDISCLI_AUTH

# ask sends a command to the node at an address and port. Its status is 0 for
# any answer, also an error; 124 or 143 (GNU, busybox) when none came in time;
# something else when nobody listens.
ask() {
	host=$1 at=$2
	shift 2
	timeout 1 "$ENGINE-cli" -h "$host" -p "$at" --user operator "$@" 2>/dev/null
}

# myself finds this node in CLUSTER NODES, where a line is: id address
# myself,master - ping pong epoch link slots. It fails if it serves no slot:
# then no replica would be elected.
myself() {
	id=${nodes%%" myself,"*}
	[ "$id" != "$nodes" ] || return 1
	id=${id##*"$nl"}
	id=${id%% *}
	slots=${nodes#*" myself,"}
	slots=${slots%%"$nl"*}
	case ${slots#* * * * * * } in
	[0-9]*) return 0 ;;
	*) return 1 ;;
	esac
}

# counted tells whether this node counts the node at address:port among its
# replicas in the cluster. Until it does, it ignores the replica's request, and
# the replica waits 5 s for nothing.
counted() {
	line=${nodes#*" $1@"}
	[ "$line" != "$nodes" ] || return 1
	case ${line%%"$nl"*} in
	*" slave"*" $id "*) return 0 ;;
	*) return 1 ;;
	esac
}

# choose picks the replica to ask: online, not asked yet, the one that has read
# furthest. It sets ip and port, or leaves ip empty; soon is set when there is
# one that this node does not count among its replicas yet.
choose() {
	ip='' port='' offset=-1 soon=false
	while IFS= read -r line; do
		case $line in
		slave[0-9]*:ip=*,port=*,state=online,offset=*) ;;
		*) continue ;;
		esac
		an_ip=${line#*:ip=} an_ip=${an_ip%%,*}
		a_port=${line#*,port=} a_port=${a_port%%,*}
		an_offset=${line#*,offset=} an_offset=${an_offset%%,*}
		case $asked in
		*" $an_ip:$a_port "*) continue ;;
		*) ;;
		esac
		if ! counted "$an_ip:$a_port"; then
			soon=true
		elif [ "$an_offset" -gt "$offset" ]; then
			ip=$an_ip port=$a_port offset=$an_offset
		fi
	done <<-EOT
		$info
	EOT
}

# waiting tells whether the replica that was asked is still at it. One that has
# won leaves the list before this node hears of it, so it is asked itself: only
# one that does not answer has ended.
waiting() {
	[ -n "$ip" ] && [ "$time" -lt "$give_up" ] || return 1
	case $info in
	*":ip=$ip,port=$port,state=online"*) return 0 ;;
	*) ask "$ip" "$port" ROLE >/dev/null ;;
	esac
}

# hand_over asks the next replica. It fails when there is none left.
hand_over() {
	nodes=$(ask "$POD_IP" "$my_port" CLUSTER NODES)
	myself || return 1
	choose
	if [ -z "$ip" ]; then
		# A replica that has just been attached is counted within a second or two.
		[ "$soon" = true ] && [ "$time" -lt $((start + 3)) ]
		return
	fi
	asked="$asked$ip:$port "
	# The server itself drops the request after 5 s.
	give_up=$((time + 6))
	answer=$(ask "$ip" "$port" CLUSTER FAILOVER)
	case $?:$answer in
	0:OK | 124:* | 143:*) ;; # an answer that is late may still be a yes
	*) hand_over ;;          # refused, or gone: the next one
	esac
}

start=$(date +%s)
time=$start
end=$((start + seconds))
asked=' '
ip=''
give_up=0
while [ "$time" -lt "$end" ]; do
	info=$(ask "$POD_IP" "$my_port" INFO replication)
	case $?:$info in
	124:* | 143:*) ;; # busy
	0:*"${nl}role:master"*)
		waiting || hand_over || exit 0
		sleep 0.1
		;;
	*) break ;; # a replica, at first or by now; or no server
	esac
	time=$(date +%s)
done
# Clients learn the new primary from the answers of the old one. If it went at
# once, those that still had it on their map would wait for a dead address.
case $info in
*"${nl}role:slave"*) [ "$asked" = ' ' ] || sleep 1 ;;
*) ;;
esac
