#!/bin/sh
# Runs before the server of a Pod is told to end. If it is a primary with slots,
# it has a replica take over gracefully: no write is lost, and clients wait a
# few milliseconds. It ends when this node has become a replica, when there is
# nobody to hand over to, and after about HAND_OVER_SECONDS in any case.
#
# It never forces: a forced failover does not look at the data, and the operator
# must be the only one that decides on it.
set -u
: "${ENGINE:=redis}" "${PORT:=6379}" "${OPERATOR_DIR:=/etc/redis-operator/operator}"
: "${HAND_OVER_SECONDS:=8}"
nl='
'

IFS= read -r REDISCLI_AUTH <"$OPERATOR_DIR/password" || :
export REDISCLI_AUTH

# ask sends commands, one a line on stdin, to the node at an address and port.
ask() {
	timeout 2 "$ENGINE-cli" -h "$1" -p "$2" --user operator 2>/dev/null
}

# look asks this node for its role, its replicas and the cluster. It ends the
# script when there is nothing to hand over, or nothing left.
look() {
	seen=$(ask "$POD_IP" "$PORT" <<-EOT
		INFO replication
		CLUSTER NODES
	EOT
	) || exit 0
	case $seen in
	*"${nl}role:master"*) ;;
	*) exit 0 ;; # a replica, done; or no server that could be asked
	esac
	# The line of this node: id address myself,master - ping pong epoch link slots
	case $seen in
	*" myself,"*) ;;
	*) exit 0 ;;
	esac
	before=${seen%%" myself,"*}
	id=${before##*"$nl"}
	id=${id%% *}
	after=${seen#*" myself,"}
	after=${after%%"$nl"*}
	slots=${after#* * * * * * }
	case $slots in
	[0-9]*) ;;
	*) exit 0 ;; # no slots: no replica would be elected
	esac
}

# known tells whether this node counts the node at address:port among its
# replicas in the cluster. If it does not yet, it ignores the replica's request.
known() {
	line=${seen#*" $1@"}
	[ "$line" != "$seen" ] || return 1
	line=${line%%"$nl"*}
	case $line in
	*" slave $id "* | *" slave,"*" $id "*) return 0 ;;
	esac
	return 1
}

# choose picks the replica to ask: online, not asked yet, the one that has read
# furthest. It sets ip and port, or leaves ip empty; unknown is set when there
# is one that this node does not count among its replicas yet.
choose() {
	ip='' port='' offset=-1 unknown=false
	while IFS= read -r line; do
		case $line in
		slave[0-9]*:ip=*,port=*,state=online,offset=*) ;;
		*) continue ;;
		esac
		i=${line#*:ip=} i=${i%%,*}
		p=${line#*,port=} p=${p%%,*}
		o=${line#*,offset=} o=${o%%,*}
		case $asked in *" $i:$p "*) continue ;; esac
		[ "$o" -gt "$offset" ] || continue
		if known "$i:$p"; then
			ip=$i port=$p offset=$o
		else
			unknown=true
		fi
	done <<-EOT
		$seen
	EOT
}

# online tells whether the replica that was asked is still there.
online() {
	case $seen in
	*":ip=$ip,port=$port,state=online"*) return 0 ;;
	esac
	return 1
}

now() { date +%s; }

start=$(now)
end=$((start + HAND_OVER_SECONDS))
asked=' '
ip=''
give_up=0
while time=$(now) && [ "$time" -lt "$end" ]; do
	look
	if [ -z "$ip" ] || [ "$time" -ge "$give_up" ] || ! online; then
		choose
		if [ -n "$ip" ]; then
			asked="$asked$ip:$port "
			# The server itself drops the request after 5 s.
			give_up=$((time + 6))
			case $(echo CLUSTER FAILOVER | ask "$ip" "$port") in
			OK) ;;
			*) ip='' && continue ;; # refused, or gone: the next one
			esac
		elif [ "$unknown" = false ] || [ "$time" -ge $((start + 2)) ]; then
			exit 0
		fi
	fi
	sleep 0.1
done
