package topology

import (
	"fmt"
	"strings"
)

// assignSlots gives slots without an owner to the shards that have none, or,
// where every shard has some, to the one with the fewest. It needs every node
// to be known and to have met the others: a slot is free only if no node claims
// it, its last owner is gone, and nobody holds a copy of what that one had.
func assignSlots(d Desired, o *Observed) Plan {
	free := AllSlots.Minus(o.Owned())
	if free.Empty() {
		return Plan{}
	}
	if names := o.unknownNodes(); len(names) > 0 {
		return Plan{Wait: WaitPods, Why: fmt.Sprintf(
			"slots have no owner; they are given out once every node is known, and nothing is known of %s", join(names))}
	}
	if p := meet(d, o); !p.Empty() {
		return p
	}
	if p := stillHeld(o, free); !p.Empty() {
		return p
	}
	takers, parts := holders(o, free)
	if len(takers) == 0 {
		var wait Plan
		if takers, wait = takersOf(d, o); len(takers) == 0 {
			return wait
		}
		parts = free.Split(len(takers))
	}
	if p := outbid(o, takers, parts); !p.Empty() {
		return p
	}
	var actions []Action
	for i, n := range takers {
		if !parts[i].Empty() {
			actions = append(actions, Action{Kind: AddSlots, Pod: n.Pod, Slots: parts[i]})
		}
	}
	return act(actions, "slots without an owner are given out")
}

// outbid makes claims to slots that had an owner before count. A table gives a
// slot up only to a claim with a higher epoch than its owner's, and a node that
// claims with a lower one is told of the old owner (clusterProcessPacket,
// clusterUpdateSlotsConfigWith): Redis makes it a replica of that ghost. So a
// taker first gets an epoch above all that other tables have for these slots, then
// it disregards the owners in its own table, which would make it refuse them.
func outbid(o *Observed, takers []*Node, parts []Slots) Plan {
	beliefs := o.ownersOf(parts)
	var bumps, dels []Action
	for i, n := range takers {
		needs, level, busy := false, false, Slots{}
		for _, b := range beliefs {
			switch {
			case b.ID == n.ID || !b.Slots.overlaps(parts[i]):
			case b.view == n:
				busy = busy.Union(b.Slots.Intersect(parts[i]))
			default:
				needs = needs || n.ConfigEpoch <= b.Epoch
				level = level || n.ConfigEpoch == b.Epoch && b.Epoch > 0
			}
		}
		if needs {
			bumps = append(bumps, Action{Kind: BumpEpoch, Pod: n.Pod})
		}
		if level {
			bumps = append(bumps, Action{Kind: BumpEpoch, Pod: another(o, n).Pod})
		}
		if !busy.Empty() {
			dels = append(dels, Action{Kind: DelSlots, Pod: n.Pod, Slots: busy})
		}
	}
	if len(bumps) > 0 {
		return act(bumps, "nodes that get slots of nodes of the past need a higher epoch than those had")
	}
	return act(dels, "nodes disregard the owners of the past of the slots that they get")
}

// another node has to raise its epoch first when a taker's own is already the
// highest that it knows of, because then the taker refuses to
// (clusterBumpConfigEpochWithoutConsensus). A replica can do it too. There is
// one: the node in whose table the claim is.
func another(o *Observed, than *Node) *Node {
	var other *Node
	for _, n := range o.answeredNodes() {
		if n != than && (other == nil || n.Primary && !other.Primary) {
			other = n
		}
	}
	return other
}

// stillHeld tells whether free slots may have an owner or a copy after all: a
// replica of a primary that no node is any more, or a process that outlives its
// Pod, as after a deletion with force: that primary itself, or a replica of it.
func stillHeld(o *Observed, free Slots) Plan {
	ghosts, heads := o.ghosts(), o.heads()
	var pending, stuck []string
	var held Slots
	for _, n := range o.answeredNodes() {
		if n.Primary || o.byID(n.Follows) != nil {
			continue
		}
		g := ghosts[n.Follows]
		slots := g.lostSlots(heads[n.Shard], free)
		switch {
		case slots.Empty(), g.slots.Empty() && n.Keys == 0:
		case n.LinkUp || n.Holder:
			pending = append(pending, n.Pod)
		case n.Keys > 0:
			held, stuck = held.Union(slots), append(stuck, n.Pod)
		}
	}
	if len(pending) > 0 {
		return Plan{Wait: WaitRedis, Why: "slots have lost their primary, and a copy of them is on " + join(pending)}
	}
	if o.strangerJoins() {
		return Plan{Wait: WaitRedis, Why: "slots have no owner, and a node shakes hands with one that is not known, which may own them"}
	}
	for id, g := range ghosts {
		if g.reachable && !o.Ended[id] {
			return Plan{Wait: WaitRedis, Why: "slots have no owner, and a node that is no Pod of the cluster any more " +
				"may still run and own them or have a copy of them"}
		}
	}
	if len(stuck) > 0 {
		return Plan{Wait: WaitPerson, Why: fmt.Sprintf(
			"slots %s have lost their primary, and %s still holds a copy that cannot be promoted safely: look at that node, "+
				"then either let it take over (CLUSTER FAILOVER TAKEOVER) or delete its Pod and its volume", held, join(stuck))}
	}
	return Plan{}
}

// holders are the primaries that have keys of the free slots, and which of these:
// a slot that has lost its owner goes back to where its keys are.
func holders(o *Observed, free Slots) (takers []*Node, parts []Slots) {
	for _, n := range o.answeredNodes() {
		if part := n.Stray.Intersect(free); n.Primary && !part.Empty() {
			takers, parts, free = append(takers, n), append(parts, part), free.Minus(part)
		}
	}
	return takers, parts
}

// takersOf picks the primaries that get free slots: one for each wanted shard
// that owns none, else the primary with the fewest slots.
func takersOf(d Desired, o *Observed) ([]*Node, Plan) {
	var takers []*Node
	var fewest *Node
	for shard := range d.Members {
		if head := o.Head(shard); head != nil {
			if fewest == nil || head.Slots.Count() < fewest.Slots.Count() {
				fewest = head
			}
			continue
		}
		n := firstPrimary(o, shard)
		if n == nil {
			return nil, noPrimary(o, shard)
		}
		takers = append(takers, n)
	}
	if len(takers) == 0 && fewest != nil {
		takers = []*Node{fewest}
	}
	return takers, Plan{}
}

// firstPrimary is the member of a shard that should lead it while none owns
// slots: the primary with the most keys, then the lowest ordinal.
func firstPrimary(o *Observed, shard int) *Node {
	var first *Node
	for _, n := range o.answeredNodes() {
		if n.Shard == shard && n.Primary && !n.Ending && !n.Doomed && (first == nil || n.Keys > first.Keys) {
			first = n
		}
	}
	return first
}

// noPrimary says what a shard waits for that has nobody to give slots to. All
// nodes are known.
func noPrimary(o *Observed, shard int) Plan {
	for i := range o.Nodes {
		if n := &o.Nodes[i]; n.Shard == shard && n.Knowledge == Blank {
			return Plan{Wait: WaitPods, Why: fmt.Sprintf("shard %d has no primary to hold its slots yet", shard)}
		}
	}
	return Plan{Wait: WaitPerson, Why: fmt.Sprintf(
		"every node of shard %d is a replica, and none has a copy of the shard's data: "+
			"delete the Pod, and the volume, of one of them, so that it comes back as a primary", shard)}
}

// attachReplicas makes every member of a shard that is not its primary follow
// it, at its present address. A node with slots of its own is left alone until they
// have been moved, and so is one that may hold the last copy of something.
//
// A wanted shard that owns no slot yet, while all slots are owned, is one that is
// to get some: its members follow the primary that will.
func attachReplicas(d Desired, o *Observed) Plan {
	var actions []Action
	var waits, unsafe []string
	complete := AllSlots.Minus(o.Owned()).Empty()
	heads, contested := o.heads(), o.contested()
	var claims []claim
	for _, n := range o.answeredNodes() {
		head := heads[n.Shard]
		if head == nil && complete && n.Shard < len(d.Members) {
			head = firstPrimary(o, n.Shard)
		}
		if head == nil || n == head || followsRightly(n, head) {
			continue
		}
		if claims == nil {
			claims = o.claims()
		}
		_, met := n.knows(head.ID)
		switch {
		case (claim{head.ID, head.ConfigEpoch, head.Slots}).outdated(claims):
			waits = append(waits, head.Pod+" has yet to hear that another node owns its slots")
		case n.Slots.overlaps(contested):
			waits = append(waits, n.Pod+" has yet to hear that another node owns its slots")
		case !n.Slots.Empty():
			// It becomes one once its slots have been moved (moves).
		case n.Primary && n.Keys > 0:
			unsafe = append(unsafe, n.Pod+" holds keys of slots that it does not own")
		case n.Keys > 0 && head.Keys == 0 && !n.LinkUp:
			unsafe = append(unsafe, n.Pod+" holds keys and its shard's primary, "+head.Pod+", holds none")
		case holdsLastCopy(o, n, complete):
			waits = append(waits, n.Pod+" may hold the last copy of what its primary had")
		case !met:
			waits = append(waits, n.Pod+" has not met "+head.Pod+" yet")
		default:
			actions = append(actions, Action{Kind: Replicate, Pod: n.Pod, ID: head.ID, Peer: head.Pod})
		}
	}
	switch {
	case len(actions) > 0:
		return act(actions, "nodes become replicas of their shard's primary")
	case len(unsafe) > 0:
		return Plan{Wait: WaitPerson, Why: join(unsafe) + ": look at that node, then save its keys or delete its Pod and its volume"}
	case len(waits) > 0:
		return Plan{Wait: WaitRedis, Why: join(waits)}
	default:
		return Plan{}
	}
}

// followsRightly tells whether a node is a replica of its head and copies from
// where that is. Redis 7 to 8 correct a primary's address by gossip without
// telling their own replication (clusterProcessGossipSection, unlike
// nodeUpdateAddressIfNeeded): the table is right then, and the link down for
// ever, until they are told to follow once more.
func followsRightly(n, head *Node) bool {
	if n.Primary || n.Follows != head.ID {
		return false
	}
	p, _ := n.knows(head.ID)
	lost := !n.LinkUp && n.Source != "" && n.Source != head.IP && p.IP == head.IP
	return !lost
}

// holdsLastCopy tells whether a replica of another primary than its head may
// hold the last copy of something: that primary does not answer, and nobody is
// known to have succeeded it, or it has come back empty. complete tells whether
// all slots have an owner that answers.
func holdsLastCopy(o *Observed, n *Node, complete bool) bool {
	if n.Primary || n.Keys == 0 {
		return false
	}
	if primary := o.byID(n.Follows); primary != nil {
		return primary.Keys == 0 && !n.LinkUp
	}
	p, known := n.knows(n.Follows)
	return !known || !p.Slots.Empty() || !complete
}

// awaitPods says what is missing when Redis itself needs nothing.
func awaitPods(d Desired, o *Observed) Plan {
	if Converged(d, o) {
		return Plan{}
	}
	if names := o.unknownNodes(); len(names) > 0 {
		return Plan{Wait: WaitPods, Why: "nothing is known yet of " + join(names)}
	}
	var unready, roleless []string
	for i := range o.Nodes {
		switch n := &o.Nodes[i]; {
		case n.Knowledge == Blank:
			unready = append(unready, n.Pod)
		case !o.HoldsRole(n) || n.Unrouted:
			roleless = append(roleless, n.Pod)
		case !n.PodReady:
			unready = append(unready, n.Pod)
		}
	}
	switch {
	case len(roleless) > 0:
		return Plan{Wait: WaitRedis, Why: "not yet in their role: " + join(roleless)}
	case len(unready) > 0:
		return Plan{Wait: WaitPods, Why: "not ready yet: " + join(unready)}
	default:
		return Plan{Wait: WaitPods, Why: "there are more or fewer nodes than the spec asks for"}
	}
}

// join lists up to five names for people.
func join(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
