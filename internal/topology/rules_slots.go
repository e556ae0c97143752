package topology

import (
	"fmt"
	"strings"
)

// recoverShards promotes a replica of a primary that has provably ended, where
// Redis cannot elect one: fewer than a majority of the primaries are left to
// vote, as in every cluster of one or two shards. Elsewhere the election is
// Redis's own. An empty or never-synced replica is no candidate.
func recoverShards(_ Desired, o *Observed) Plan {
	best := map[string]*Node{}
	for _, n := range o.answeredNodes() {
		if n.Primary || n.LinkUp || n.Follows == "" || o.byID(n.Follows) != nil {
			continue
		}
		if p, known := n.knows(n.Follows); !known || p.Slots.Empty() {
			continue
		}
		b := best[n.Follows]
		if n.Holder && (b == nil || n.Offset > b.Offset || n.Offset == b.Offset && n.ID < b.ID) {
			best[n.Follows] = n
		}
	}
	for _, n := range o.answeredNodes() {
		lost := n.Follows
		switch {
		case best[lost] != n:
		case canElect(o, lost):
			return Plan{Wait: WaitRedis, Why: fmt.Sprintf("the primary of shard %d is gone; its replicas elect another", n.Shard)}
		case !o.Ended[lost]:
			return Plan{Wait: WaitRedis, Why: fmt.Sprintf(
				"the primary of shard %d does not answer; %s is promoted once that process has provably ended", n.Shard, n.Pod)}
		default:
			return act([]Action{{Kind: Takeover, Pod: n.Pod, ID: lost}},
				fmt.Sprintf("the primary of shard %d has ended and no majority is left to elect another", n.Shard))
		}
	}
	return Plan{}
}

// canElect tells whether a majority of the primaries that own slots, the lost
// one counted, is left to vote.
func canElect(o *Observed, lost string) bool {
	voters := map[string]bool{lost: true}
	alive := 0
	for _, n := range o.answeredNodes() {
		if n.Primary && !n.Slots.Empty() {
			alive++
			voters[n.ID] = true
		}
		for _, p := range n.Peers {
			if !p.Slots.Empty() && o.byID(p.ID) == nil {
				voters[p.ID] = true
			}
		}
	}
	return alive > len(voters)/2
}

// assignSlots gives slots without an owner to the shards that have none, or,
// where every shard has some, to the one with the fewest. It needs every node
// to be known: a slot is free only if no node claims it and nobody holds a copy
// of what its last owner had.
func assignSlots(d Desired, o *Observed) Plan {
	free := AllSlots.Minus(o.Owned())
	if free.Empty() {
		return Plan{}
	}
	if names := o.unknownNodes(); len(names) > 0 {
		return Plan{Wait: WaitPods, Why: fmt.Sprintf(
			"slots have no owner; they are given out once every node is known, and nothing is known of %s", join(names))}
	}
	if held, by := heldCopies(o); !held.Intersect(free).Empty() {
		return Plan{Wait: WaitPerson, Why: fmt.Sprintf(
			"slots %s have lost their primary, and %s still holds a copy that cannot be promoted safely: look at that node, "+
				"then either let it take over (CLUSTER FAILOVER TAKEOVER) or delete its Pod", held.Intersect(free), by)}
	}
	takers, wait := takersOf(d, o)
	if len(takers) == 0 {
		return wait
	}
	parts := free.Split(len(takers))
	var actions []Action
	for i, n := range takers {
		if !parts[i].Empty() {
			actions = append(actions, Action{Kind: AddSlots, Pod: n.Pod, Slots: parts[i]})
		}
	}
	return act(actions, "slots without an owner are given out")
}

// heldCopies is the set of slots of primaries that no node is any more, but
// that an answered replica still follows, and the Pod of one such replica.
func heldCopies(o *Observed) (held Slots, by string) {
	for _, n := range o.answeredNodes() {
		if n.Primary || n.Keys == 0 || o.byID(n.Follows) != nil {
			continue
		}
		if p, ok := n.knows(n.Follows); ok && !p.Slots.Empty() {
			held, by = held.Union(p.Slots), n.Pod
		}
	}
	return held, by
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
			return nil, Plan{Wait: WaitPods, Why: fmt.Sprintf("shard %d has no primary to hold its slots yet", shard)}
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
		if n.Shard == shard && n.Primary && (first == nil || n.Keys > first.Keys) {
			first = n
		}
	}
	return first
}

// attachReplicas makes every member of a shard that is not its primary follow
// it. A node with keys or slots of its own is left alone, and so is a replica
// of a primary that is gone: it may hold the last copy.
func attachReplicas(_ Desired, o *Observed) Plan {
	var actions []Action
	var waits []string
	for _, n := range o.answeredNodes() {
		head := o.Head(n.Shard)
		if head == nil || n == head || !n.Primary && n.Follows == head.ID {
			continue
		}
		_, met := n.knows(head.ID)
		switch {
		case !n.Slots.Empty():
			waits = append(waits, n.Pod+" owns slots although "+head.Pod+" leads its shard")
		case n.Primary && n.Keys > 0:
			waits = append(waits, n.Pod+" holds keys of slots that it does not own")
		case !n.Primary && holdsLastCopy(o, n):
			waits = append(waits, n.Pod+" follows a primary that is gone")
		case !met:
			waits = append(waits, n.Pod+" has not met "+head.Pod+" yet")
		default:
			actions = append(actions, Action{Kind: Replicate, Pod: n.Pod, ID: head.ID, Peer: head.Pod})
		}
	}
	if len(actions) == 0 && len(waits) > 0 {
		return Plan{Wait: WaitRedis, Why: join(waits)}
	}
	return act(actions, "nodes become replicas of their shard's primary")
}

// holdsLastCopy tells whether a replica follows a primary that does not answer
// and still owns slots, in the replica's eyes.
func holdsLastCopy(o *Observed, n *Node) bool {
	p, known := n.knows(n.Follows)
	return o.byID(n.Follows) == nil && known && !p.Slots.Empty() && n.Keys > 0
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
		case !o.HoldsRole(n):
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
