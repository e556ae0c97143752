#!/bin/sh
# The start guard: holds a primary back that has restarted, until the other
# members of its shard are not harmed by it. Replicas reconnect by address within
# a second and copy whatever is there: a primary that came back empty, or with
# less than they have, would take their data with it.
#
# It ends as soon as the server may start:
#   - at once for a new node, for a replica, and for a primary that has no slots or
#     that nobody follows;
#   - when somebody else is the primary of its slots, and nobody follows it any more;
#   - when it has its data, and nobody who answers has a copy that could be newer.
# A replica that holds a copy is promoted: by the operator, or after three seconds
# by this script. A primary that has lost its data, of which nobody has a copy,
# waits until its Pod is deleted: that is how the operator consents.
#
# usage: guard.sh [root [port]], as start.sh; POD_NAME and SERVICE (the headless
# Service) name the other members.
set -u
: "${ENGINE:?}" "${POD_IP:?}" "${POD_NAME:?}" "${SERVICE:?}"
trap 'exit 143' TERM
root=${1-}
port=${2:-6379}
etc=$root/etc/redis-operator
run=$root/run/redis-operator/guard
conf=$root/data/nodes.conf
shard=${POD_NAME%-*}
ordinal=${POD_NAME##*-}
nl='
'
cr=$(printf '\r')

# How long the guard waits, in hundredths of a second: for the operator to promote
# a holder; for a member that gives no clear answer, which is cluster-node-timeout
# and as much more; for a replica that has not noticed that its primary is gone,
# which Redis does within repl-timeout, 60 s; and for the process before this one,
# whose Pod was deleted by force and has its grace period.
patience=300
silence=800
unnoticed=6500
grace=15000

say() { echo "start guard: $1" >&2; }

# clock sets now, from a clock that nobody sets, without starting a process.
clock() {
	IFS=' .' read -r seconds hundredths rest </proc/uptime
	now=$((seconds * 100 + 1$hundredths - 100))
}

# ask has the server at an address and port say who it is and how its replication
# stands, into a file.
ask() {
	timeout 2 "$ENGINE-cli" -h "$1" -p "$2" --user operator >"$run/$3" 2>&1 <<-EOT
		CLUSTER NODES
		INFO replication
		INFO persistence
	EOT
}

# owns tells whether a line of CLUSTER NODES, from its flags on, has slots. It is:
# flags primary ping pong epoch link slots.
owns() {
	case ${1#* * * * * * } in
	[0-9]*) return 0 ;;
	*) return 1 ;;
	esac
}

# field gives the value of a line name:value of INFO.
field() {
	value=${answer#*"$nl$1:"}
	[ "$value" != "$answer" ] || return 1
	value=${value%%"$nl"*}
	value=${value%"$cr"}
}

# read_answer finds who has answered, its_id, and its own line; or the reason why
# nobody has: absent when nobody listens there, nameless when the name has no
# address, silent for all that may hide a copy, such as no answer in time, a
# login that fails, a server that loads.
read_answer() {
	answer=$nl$(cat "$run/$1")
	its_id='' line=''
	case $answer in
	*" myself,"*)
		class=answered
		its_id=${answer%%" myself,"*}
		its_id=${its_id##*"$nl"}
		its_id=${its_id%% *}
		line=${answer#*" myself,"}
		line=${line%%"$nl"*}
		;;
	*"Connection refused"*) class=absent ;;
	# The words of glibc and of musl.
	*" not known"* | *" not resolve"* | *"No address"* | *"no usable address"* | *"name resolution"* | *"Try again"*) class=nameless ;;
	*) class=silent ;;
	esac
}

# judge says what the one who has answered means to this node: it is its
# successor, a replica of it, or none of both (other). A replica is a holder when
# its link was up in the life of its process and nothing has replaced what it
# had; stale when it has nothing or something old; and unclear as long as it may
# still become a holder.
judge() {
	class=other
	case $line in
	master*)
		mine=${answer#*"$nl$id "}
		mine=${mine%%"$nl"*}
		! owns "$line" || owns "${mine#* }" || class=successor
		return
		;;
	slave*" $id "*) ;;
	*) return ;;
	esac
	class=unclear
	field loading && [ "$value" = 0 ] || return
	field master_sync_in_progress && [ "$value" = 0 ] || return
	field master_link_status || return
	if [ "$value" = up ]; then
		class=linked
		return
	fi
	class=stale
	field master_link_down_since_seconds && [ "$value" != -1 ] || return
	# A replica without a position in its primary's history says 1.
	field slave_repl_offset && [ "$value" != 1 ] || return
	class=holder
}

# count adds the one who has answered, from a host and port, to what look sums up.
count() {
	case $seen in
	*" $its_id "*) return ;;
	*) ;;
	esac
	seen="$seen$its_id "
	judge
	case $class in
	successor) succeeded=true ;;
	stale) followed=true ;;
	unclear) followed=true unknown=true ;;
	linked) followed=true unknown=true linked=true ;;
	holder) followed=true holders="$holders$value $its_id $1 $2$nl" ;;
	*) ;;
	esac
}

# look asks the members of the shard, all at once, and sums up what is known:
# succeeded, followed (by one who answers), absent, unknown, linked, and the
# holders, one on a line: offset id host port.
#
# A replica is asked at the address that nodes.conf has for it, where one that
# holds a copy still is. Addresses are given to other Pods later, so an answer
# counts only with its id. Where one is missing, and after a while in any case,
# all members are asked under their names.
look() {
	holders='' seen=" $id " succeeded=false followed=false absent=false unknown=false linked=false
	for follower in $followers; do
		address=${follower#*=}
		ask "${address%:*}" "${address##*:}" "${follower%%=*}" &
	done
	wait
	missing=''
	for follower in $followers; do
		address=${follower#*=}
		read_answer "${follower%%=*}"
		if [ "$its_id" = "${follower%%=*}" ]; then
			count "${address%:*}" "${address##*:}"
		else
			missing="$missing ${follower%%=*}=$class"
		fi
	done
	[ -z "$missing" ] && [ "$waited" -lt "$silence" ] || look_at_names
	look_for_missing
}

# look_at_names asks the members under their names. They are numbered without
# gaps, and there is one for each replica and this one; more are looked for as long
# as one is missing. clear and silent count the names that gave an answer, or that
# nobody listens at, and those where it is not known.
look_at_names() {
	n=0
	while [ "$n" -lt "$members" ]; do
		[ "$n" = "$ordinal" ] || ask "$shard-$n.$SERVICE$domain" "$port" "$n" &
		n=$((n + 1))
	done
	wait
	clear=0 silent=0 highest=$ordinal
	n=0
	while [ "$n" -lt "$members" ]; do
		class=self
		[ "$n" = "$ordinal" ] || read_answer "$n"
		case $class in
		answered | absent)
			clear=$((clear + 1))
			[ "$n" -le "$highest" ] || highest=$n
			;;
		# Of the names that may not exist, no answer is none.
		silent) [ "$n" -gt "$expected" ] || silent=$((silent + 1)) ;;
		*) ;;
		esac
		[ "$class" != answered ] || count "$shard-$n.$SERVICE$domain" "$port"
		n=$((n + 1))
	done
}

# look_for_missing judges the replicas that are nowhere. One is absent when each
# place where it could be has been looked at.
look_for_missing() {
	for follower in $missing; do
		case $seen in
		*" ${follower%%=*} "*) continue ;;
		*) ;;
		esac
		[ "$members" -ge $((highest + 3)) ] || members=$((highest + 3))
		case ${follower#*=} in
		silent | nameless) [ "$clear" -ge "$expected" ] || unknown=true ;;
		*) ;;
		esac
		if [ "$silent" -gt 0 ]; then unknown=true; else absent=true; fi
	done
}

# find_domain sets domain, which makes a full name of a Pod's name in its Service.
# Otherwise a name that does not exist is looked up in all domains, and outside of
# the cluster too, and that takes seconds.
find_domain() {
	domain=''
	[ -r "$root/etc/resolv.conf" ] || return
	while read -r keyword first rest; do
		case $keyword:$first in
		search:*.svc.*) domain=.${first%.}. ;;
		*) ;;
		esac
	done <"$root/etc/resolv.conf"
}

# has_data tells whether the server finds its data. It reads the one file or the
# other, as it is configured.
has_data() {
	aof=false
	while IFS= read -r directive; do
		case $directive in
		"appendonly "*[Yy][Ee][Ss]*) aof=true ;;
		*) ;;
		esac
	done <"$etc/config/redis.conf"
	if [ "$aof" = false ]; then
		[ -s "$root/data/dump.rdb" ]
		return
	fi
	for file in "$root"/data/appendonlydir/*; do
		[ ! -s "$file" ] || return 0
	done
	return 1
}

# promote has the best holder replace this node: by election first, which asks the
# other primaries, and then without. It stays with the one that it has asked, as
# long as that one may still win.
promote() {
	way=TAKEOVER
	case $nl$holders in
	*" ${chosen:-none} "*) ;;
	*)
		if [ -n "$chosen" ] && [ "$unknown" = true ] && [ "$now" -lt $((asked + silence)) ]; then
			return
		fi
		chosen=$(printf '%s' "$holders" | sort -k1,1nr -k2,2 | head -n 1)
		chosen=${chosen#* }
		chosen=${chosen%% *}
		asked=$now
		way=FORCE
		;;
	esac
	holder=${holders#*" $chosen "}
	holder=${holder%%"$nl"*}
	answer=$(timeout 1 "$ENGINE-cli" -h "${holder% *}" -p "${holder#* }" --user operator CLUSTER FAILOVER "$way" 2>&1)
	message="the replica at ${holder% *} holds a copy and was not promoted in time: CLUSTER FAILOVER $way, $answer"
	[ "$message" = "$said" ] || say "$message"
	said=$message
	# An election takes a tenth of a second.
	[ "$way" = TAKEOVER ] || sleep 0.3
}

# wait_for_data says why this node does not start: at first, when that changes,
# but not all the time, and every minute.
wait_for_data() {
	message="the data of slots $slots are lost here"
	[ "$followed" = false ] || message="$message, no replica that answers has a copy"
	[ "$absent" = false ] || message="$message, a replica is away"
	[ "$unknown" = false ] || message="$message, a replica gives no clear answer"
	if [ "$now" -ge "$tell" ] || { [ "${why:-$message}" != "$message" ] && [ "$now" -ge $((tell - 5500)) ]; }; then
		say "$message; this node waits for one that has them, or for its Pod to be deleted"
		why=$message tell=$((now + 6000))
	fi
}

# predecessor tells whether the process before this one is still there, which
# happens when its Pod was deleted by force: two on one volume would ruin it. From
# Redis 8.0 on a server loses its lock when it writes nodes.conf anew, so it is
# also asked for at the address that this node had.
predecessor() {
	if command -v flock >/dev/null 2>&1; then
		flock -n "$conf" true 2>/dev/null
		[ $? != 1 ] || return 0
	fi
	case ${address%:*} in
	'' | "$POD_IP") return 1 ;;
	*) ;;
	esac
	ask "${address%:*}" "${address##*:}" before
	read_answer before
	[ "$its_id" = "$id" ]
}

own_line=$(grep ' myself,' "$conf") || exit 0
id=${own_line%% *}
address=${own_line#* }
address=${address%%@*}
mkdir -p "$run"
trap 'rm -rf "$run"' EXIT
IFS= read -r REDISCLI_AUTH <"$etc/operator/password" || :
export REDISCLI_AUTH
clock
begun=$now tell=$now
while predecessor; do
	if [ "$now" -ge "$tell" ]; then
		say "the process before this one still has the volume: waiting for its end"
		tell=$((now + 6000))
	fi
	if [ "$now" -ge $((begun + grace)) ]; then
		say "the process before this one still has the volume"
		exit 1
	fi
	sleep 0.2
	clock
done

# What the process before has done last is in the file only now.
own_line=$(grep ' myself,' "$conf") || exit 0
line=${own_line#*" myself,"}
case $line in
master*) ;;
*) exit 0 ;;
esac
owns "$line" || exit 0
slots=${line#* * * * * * }
followers=$(sed -n "s/^\([0-9a-f]*\) \([^ @]*\)@[^ ]* slave[^ ]* $id .*/\1=\2/p" "$conf")
[ -n "$followers" ] || exit 0
data=false
! has_data || data=true
expected=0
for follower in $followers; do
	expected=$((expected + 1))
done
members=$((expected + 1))
[ "$members" -gt "$ordinal" ] || members=$((ordinal + 1))
find_domain
chosen='' asked=0 said='' why='' waited=0
clock
begun=$now tell=$((now + patience))
# Without start.sh nobody waits for this script any more.
while [ -d "/proc/$PPID" ]; do
	look
	clock
	waited=$((now - begun))
	limit=$patience
	[ "$unknown" = false ] || limit=$silence
	if [ "$succeeded" = true ]; then
		# One that still follows this node is told of its successor by others.
		if [ "$followed" = false ] || [ "$waited" -ge "$silence" ]; then
			say "another node has taken over"
			break
		fi
	elif [ "$followed$absent$unknown" = falsefalsefalse ]; then
		break # they have all left
	else
		[ "$linked" = false ] || limit=$unnoticed
		if [ -n "$holders" ]; then
			[ "$waited" -lt "$limit" ] || promote
		elif [ "$data" = true ]; then
			if [ "$waited" -ge "$limit" ]; then
				say "no other member has shown a newer copy: starting with the data of this node"
				break
			fi
		else
			wait_for_data
		fi
	fi
	if [ "$waited" -lt 1000 ]; then sleep 0.2; else sleep 1; fi
done
