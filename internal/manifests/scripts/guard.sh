#!/bin/sh
# The start guard: holds a primary back that has restarted, until the other
# members of its shard are not harmed by it. Replicas reconnect by address within a
# second and copy whatever is there. A primary that has come back empty, or older
# than they are, would take their data with it.
#
# It ends as soon as the server may start. A replica, a new node and a primary that
# nobody follows may at once. One whose replica still holds a copy has that one
# promoted: the operator does so within three seconds, and after that the guard. One
# that has its data and that nobody has a better copy of may start, too. One that
# has lost its data waits, for as long as it takes, for its Pod to be deleted: the
# operator does that when it has seen that no member has a copy either.
#
# usage: guard.sh [root [port]], as start.sh; POD_NAME and SERVICE (the headless
# Service) name the other members.
set -u
: "${ENGINE:?}" "${POD_IP:?}" "${POD_NAME:?}" "${SERVICE:?}"
trap 'exit 143' TERM
root=${1-}
port=${2:-6379}
run=$root/run/redis-operator/guard
conf=$root/data/nodes.conf
# For whom a holder is waited before the guard acts, and for how long at most for
# one that does not answer: cluster-node-timeout and as much more, in seconds.
patience=3
most=8

say() { echo "start guard: $1" >&2; }

# read_table reads from nodes.conf who this node is and who follows it. A line is:
# id address@bus,name flags primary ping pong epoch link slots...
read_table() {
	id='' slots='' followers='' count=0
	while IFS= read -r line; do
		case $line in
		*" myself,master "*)
			id=${line%% *}
			slots=${line#* * * * * * * * }
			[ "$slots" != "$line" ] || slots=''
			;;
		*) ;;
		esac
	done <"$conf"
	[ -n "$id" ] || return 1
	while IFS= read -r line; do
		case $line in
		*" slave $id "* | *" slave,"*" $id "*)
			address=${line#* }
			address=${address%%@*}
			followers="$followers $address"
			count=$((count + 1))
			;;
		*) ;;
		esac
	done <"$conf"
}

has_data() {
	[ ! -s "$root/data/dump.rdb" ] || return 0
	for file in "$root"/data/appendonlydir/*; do
		[ ! -s "$file" ] || return 0
	done
	return 1
}

# ask has a node say who it is and how its replication stands, into a file.
ask() {
	printf 'CLUSTER NODES\nINFO replication\n' |
		timeout 1 "$ENGINE-cli" -h "$1" -p "$2" --user operator >"$run/$3" 2>&1
	echo "$? $1 $2" >>"$run/$3"
}

# field gives the value of a line name:value of INFO.
field() {
	value=${answer#*"
$1:"}
	[ "$value" != "$answer" ] || return 1
	value=${value%%
*}
	value=${value%"$cr"}
}

# judge classifies an answer. Unknown is what may hide a copy: no answer in time, a
# login that fails, a server that loads.
judge() {
	answer=$(cat "$run/$1")
	last=${answer##*
}
	host=${last#* }
	at=${host#* } host=${host% *}
	case $answer in
	*"myself,"*) ;;
	*"Connection refused"*) class=absent && return ;;
	*"not known"* | *"not resolve"* | *"No address"*) class=nameless && return ;;
	*) class=unknown && return ;;
	esac
	its_id=${answer%%" myself,"*}
	its_id=${its_id##*
}
	its_id=${its_id%% *}
	line=${answer#*" myself,"}
	line=${line%%
*}
	line=${line%"$cr"}
	class=other
	case $line in
	"master "*)
		case ${line#* * * * * * } in
		[0-9]*) [ "$its_id" = "$id" ] || class=successor ;;
		*) ;;
		esac
		return
		;;
	*" $id "*) ;;
	*) return ;;
	esac
	class=stale
	field master_link_status || return
	if [ "$value" = up ]; then
		class=unknown # it has not noticed yet
		return
	fi
	if field master_sync_in_progress && [ "$value" != 0 ]; then return; fi
	if ! field master_link_down_since_seconds || [ "$value" = -1 ]; then return; fi
	# A replica without a position in its primary's history is at 1.
	if ! field slave_repl_offset || [ "$value" = 1 ]; then return; fi
	class=holder
}

# look asks all members of the shard at once and sums up. It sets holder (its host
# and port, empty for none), and succeeded, followed, absent and unknown.
look() {
	rm -f "$run"/*
	n=0
	while [ "$n" -lt "$members" ]; do
		[ "$n" = "$ordinal" ] || ask "$shard-$n.$SERVICE" "$port" "name-$n" &
		n=$((n + 1))
	done
	for address in $followers; do
		ask "${address%:*}" "${address##*:}" "table-$address" &
	done
	wait
	holder='' offset=-1 holder_id='' succeeded=false followed=false absent=false unknown=false
	known=0 highest=-1
	for file in "$run"/name-*; do
		[ -e "$file" ] || continue
		judge "${file##*/}"
		[ "$class" != nameless ] || continue
		n=${file##*-}
		[ "$n" -le "$highest" ] || highest=$n
		case $class in unknown) ;; *) known=$((known + 1)) ;; esac
		sum_up
	done
	[ "$highest" -lt $((members - 2)) ] || members=$((members * 2))
	# Under a name each member has its present address. The old ones matter where
	# a name is missing.
	if [ "$known" -lt "$count" ]; then
		for file in "$run"/table-*; do
			[ -e "$file" ] || continue
			judge "${file##*/}"
			sum_up
		done
	fi
}

sum_up() {
	case $class in
	successor) succeeded=true ;;
	stale) followed=true ;;
	absent) absent=true ;;
	unknown) unknown=true ;;
	holder)
		followed=true
		if [ "$value" -gt "$offset" ] || { [ "$value" = "$offset" ] && expr "$its_id" "<" "$holder_id" >/dev/null; }; then
			holder="$host $at" offset=$value holder_id=$its_id
		fi
		;;
	*) ;;
	esac
}

# promote has the holder replace this node: by election first, which checks with the
# others, and a moment later without.
promote() {
	way=FORCE
	[ "$holder" != "$forced" ] || way=TAKEOVER
	say "the replica at $holder holds a copy and nobody has promoted it: CLUSTER FAILOVER $way"
	timeout 1 "$ENGINE-cli" -h "${holder% *}" -p "${holder#* }" --user operator CLUSTER FAILOVER "$way" >/dev/null 2>&1
	forced=$holder
	sleep 0.5
}

[ -s "$conf" ] || exit 0
read_table || exit 0
# The process before this one may still end, where its Pod was deleted by force.
if command -v flock >/dev/null 2>&1; then
	timeout 30 flock "$conf" true || say "another process still has the volume"
fi
mkdir -p "$run"
IFS= read -r REDISCLI_AUTH <"$root/etc/redis-operator/operator/password" || :
export REDISCLI_AUTH
cr=$(printf '\r')
shard=${POD_NAME%-*} ordinal=${POD_NAME##*-}
members=4
forced=''
data=false
! has_data || data=true
begun=$(date +%s)
told=0
while :; do
	look
	waited=$(($(date +%s) - begun))
	if [ "$followed" = false ]; then
		[ "$succeeded" = false ] || { say "another node has taken over" && break; }
		[ "$absent" = true ] || [ "$unknown" = true ] || break
	fi
	if [ -n "$holder" ]; then
		[ "$waited" -lt "$patience" ] || promote
	elif [ "$data" = true ]; then
		if [ "$waited" -ge "$most" ] || { [ "$waited" -ge "$patience" ] && [ "$unknown" = false ]; }; then
			say "no other member has a copy that is newer"
			break
		fi
	elif [ "$waited" -ge "$told" ]; then
		[ "$told" = 0 ] || say "this node has lost the data of its slots ($slots); it waits for a replica that has a copy, or for its Pod to be deleted"
		told=$((waited + (told == 0 ? most : 60)))
	fi
	sleep 0.2
done
rm -rf "$run"
