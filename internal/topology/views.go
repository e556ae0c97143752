package topology

import "slices"

// What the nodes say of each other, and of those that no Pod answers for.

// ghost is an id that some table lists and that no answered node has: a node of
// the past, or one that does not answer now.
type ghost struct {
	// slots are all that any node believes the ghost to own, epoch the highest
	// that any has for it.
	slots Slots
	epoch uint64
	// reachable: some node that lists it does not mark it as failed.
	reachable bool
}

// ghosts finds them, by id, in the tables of the answered nodes.
func (o *Observed) ghosts() map[string]ghost {
	out := map[string]ghost{}
	for _, n := range o.answeredNodes() {
		for _, p := range n.Peers {
			if p.Handshake || o.byID(p.ID) != nil {
				continue
			}
			g := out[p.ID]
			if !p.Slots.Empty() {
				g.slots = g.slots.Union(p.Slots)
			}
			g.epoch = max(g.epoch, p.Epoch)
			g.reachable = g.reachable || !p.Failed
			out[p.ID] = g
		}
	}
	return out
}

// lostSlots are the free slots that may have been the ghost's, seen from a
// replica of it in a shard with the given head. If no table knows what it owned,
// it can be any, unless the shard has a new head already.
func (g ghost) lostSlots(head *Node, free Slots) Slots {
	if g.slots.Empty() && head == nil {
		return free
	}
	return g.slots.Intersect(free)
}

// claim is what somebody believes of the owner of some slots.
type claim struct {
	owner string
	epoch uint64
	slots Slots
}

// claims are all beliefs about owners of slots, those of the owners themselves
// included; beliefs in the same owner and epoch are one.
func (o *Observed) claims() []claim {
	type key struct {
		owner string
		epoch uint64
	}
	var out []claim
	at := map[key]int{}
	add := func(owner string, epoch uint64, slots Slots) {
		i, ok := at[key{owner, epoch}]
		switch {
		case !ok:
			at[key{owner, epoch}] = len(out)
			out = append(out, claim{owner, epoch, slots})
		case !slices.Equal(out[i].slots, slots):
			out[i].slots = out[i].slots.Union(slots)
		}
	}
	for _, n := range o.answeredNodes() {
		if !n.Slots.Empty() {
			add(n.ID, n.ConfigEpoch, n.Slots)
		}
		for _, p := range n.Peers {
			if !p.Handshake && !p.Slots.Empty() {
				add(p.ID, p.Epoch, p.Slots)
			}
		}
	}
	return out
}

// outdated tells whether a claim has been overtaken: somebody believes another
// node to own some of the slots, with a higher epoch.
func (c claim) outdated(claims []claim) bool {
	return slices.ContainsFunc(claims, func(other claim) bool {
		return other.owner != c.owner && other.epoch > c.epoch && other.slots.overlaps(c.slots)
	})
}

// belief is a line of a table, and whose table it is.
type belief struct {
	Peer
	view *Node
}

// ownersOf are the lines of all tables that give some of the slots an owner.
func (o *Observed) ownersOf(parts []Slots) []belief {
	slots := SlotsOf(slices.Concat(parts...)...)
	var out []belief
	for _, n := range o.answeredNodes() {
		for _, p := range n.Peers {
			if !p.Handshake && p.Slots.overlaps(slots) {
				out = append(out, belief{p, n})
			}
		}
	}
	return out
}

// shakes tells whether the node is shaking hands with an address. To order the
// same again would change nothing: clusterStartHandshake refuses a second one
// for an address, and drops the first after cluster-node-timeout.
func (n *Node) shakes(ip string) bool {
	for _, p := range n.Peers {
		if p.Handshake && p.IP == ip {
			return true
		}
	}
	return false
}

// strangerJoins tells whether some node is shaking hands with an address that no
// answered node has.
func (o *Observed) strangerJoins() bool {
	known := map[string]bool{}
	nodes := o.answeredNodes()
	for _, n := range nodes {
		known[n.IP] = true
	}
	for _, n := range nodes {
		for _, p := range n.Peers {
			if p.Handshake && !known[p.IP] {
				return true
			}
		}
	}
	return false
}

// at finds the line of an address in the node's table, handshakes left out.
func (n *Node) at(ip string) (Peer, bool) {
	for _, p := range n.Peers {
		if p.IP == ip && !p.Handshake {
			return p, true
		}
	}
	return Peer{}, false
}
