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

// claim is what one node believes of the owner of some slots.
type claim struct {
	view  *Node
	owner string
	slots Slots
	epoch uint64
}

// claims are the beliefs, in all tables, about the owners of the given slots.
func (o *Observed) claims(slots Slots) []claim {
	var out []claim
	for _, n := range o.answeredNodes() {
		for _, p := range n.Peers {
			if p.Handshake || p.Slots.Empty() {
				continue
			}
			if both := p.Slots.Intersect(slots); !both.Empty() {
				out = append(out, claim{view: n, owner: p.ID, slots: both, epoch: p.Epoch})
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

// superseded tells whether a primary has yet to hear that it was replaced: some
// table has another owner of its slots, with a higher epoch.
func (o *Observed) superseded(n *Node) bool {
	return slices.ContainsFunc(o.claims(n.Slots), func(c claim) bool {
		return c.owner != n.ID && c.epoch > n.ConfigEpoch
	})
}
