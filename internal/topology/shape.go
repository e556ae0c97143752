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

// Unmet are those of the nodes that nobody has met yet: they have not joined the
// cluster, rather than been lost by it. As long as some table lists an id that does
// not answer, a node that nobody has met may have been that one.
func Unmet(o *Observed, nodes []*Node) map[*Node]bool {
	if len(nodes) == 0 {
		return nil
	}
	o = o.indexed()
	if len(o.ghosts()) > 0 {
		return nil
	}
	known := map[string]bool{}
	for _, n := range o.answeredNodes() {
		for _, p := range n.Peers {
			known[p.ID] = known[p.ID] || !p.Handshake
		}
	}
	unmet := map[*Node]bool{}
	for _, n := range nodes {
		unmet[n] = !known[n.ID]
	}
	return unmet
}

// Missed are the shards that have lost a replica: some table lists one of their
// primaries that does not answer.
func Missed(o *Observed) map[int]bool {
	o = o.indexed()
	shards := map[string]int{}
	for shard, head := range o.heads() {
		shards[head.ID] = shard
	}
	missed := map[int]bool{}
	for _, n := range o.answeredNodes() {
		for _, p := range n.Peers {
			if shard, ok := shards[p.Follows]; ok && !p.Handshake && o.byID(p.ID) == nil {
				missed[shard] = true
			}
		}
	}
	return missed
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
	o = o.indexed()
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

// indexed is what is observed with an index of the ids, of which the tables of a
// large cluster list many.
func (o *Observed) indexed() *Observed {
	if o.byIDs != nil {
		return o
	}
	with := *o
	with.byIDs = map[string]*Node{}
	for _, n := range o.answeredNodes() {
		if with.byIDs[n.ID] == nil {
			with.byIDs[n.ID] = n
		}
	}
	return &with
}
