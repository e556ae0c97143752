package topology

// What tells a cluster that is being changed from one that has lost something, for
// those who report it.

// Out are the wanted nodes that do not do their work: that are not ready, do not
// answer, or are in another role than they should be. What a node thinks of the
// cluster as a whole does not count: one lost primary of few makes all others call
// it broken.
func Out(d Desired, o *Observed) []*Node {
	heads := o.heads()
	var out []*Node
	for i := range o.Nodes {
		n := &o.Nodes[i]
		head := heads[n.Shard]
		atWork := n.answered() && n.PodReady && !n.Ending && head != nil &&
			(n == head && n.Primary || n != head && !n.Primary && n.Follows == head.ID && n.LinkUp)
		if d.wants(n) && !atWork {
			out = append(out, n)
		}
	}
	return out
}

// Fresh tells whether nobody has met a node yet: it has not joined the cluster,
// rather than been lost by it. As long as some table lists an id that does not
// answer, a node that nobody has met may have been that one.
func Fresh(o *Observed, n *Node) bool {
	if len(o.ghosts()) > 0 {
		return false
	}
	for _, other := range o.answeredNodes() {
		if _, known := other.knows(n.ID); known {
			return false
		}
	}
	return true
}

// Missed tells whether a shard has lost a replica: some table lists one of its
// primary that does not answer.
func Missed(o *Observed, shard int) bool {
	head := o.Head(shard)
	if head == nil {
		return false
	}
	for _, n := range o.answeredNodes() {
		for _, p := range n.Peers {
			if p.Follows == head.ID && !p.Handshake && o.byID(p.ID) == nil {
				return true
			}
		}
	}
	return false
}

// Promised are the slots whose primary has been asked to hand over to a replica: for
// a moment neither of the two may say that it owns them.
func Promised(o *Observed) Slots {
	var out Slots
	for _, n := range o.answeredNodes() {
		if asked, ok := o.Asked[n.ID]; ok && asked.Kind == Handover && !asked.Due && !n.Primary {
			line, _ := n.knows(n.Follows)
			out = out.Union(line.Slots)
		}
	}
	return out
}

// Lost are the slots that nobody serves for sure: no primary that answers does, and
// none that does not answer can. Such a node may still serve what others know it to
// own, at its address, as long as they reach it; of one that they do not know there,
// no client hears. When no node answers at all, the reason may be the operator's own
// network.
func Lost(o *Observed) Slots {
	answered := o.answeredNodes()
	lost := AllSlots.Minus(Promised(o))
	for _, n := range answered {
		if n.Primary && n.ClusterOK {
			lost = lost.Minus(n.Slots)
		}
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		switch {
		case n.Knowledge != Unknown || n.Idle || n.Held || n.IP == "":
		case len(answered) == 0:
			return nil
		default:
			lost = lost.Minus(o.reachedAt(n.IP))
		}
	}
	return lost
}

// reachedAt are the slots of the nodes that do not answer and that the others know
// at an address, unless one of them has lost such a node.
func (o *Observed) reachedAt(ip string) Slots {
	var slots Slots
	for _, n := range o.answeredNodes() {
		p, known := n.at(ip)
		switch {
		case !known || o.byID(p.ID) != nil:
		case p.Failed:
			return nil
		default:
			slots = slots.Union(p.Slots)
		}
	}
	return slots
}
