package topology

// spreadMost bounds the greetings of one pass.
const spreadMost = 64

// spread tells nodes who owns slots that they know no owner of. Redis does not
// announce ADDSLOTS: the others hear of it when they are next pinged, which can
// take half of cluster-node-timeout for each. A node that is met by one that it
// knows already only reads the greeting's header, and the header holds the
// sender's slots. One greeting at a time is enough: it either arrives or is dropped
// after cluster-node-timeout.
func spread(_ Desired, o *Observed) Plan {
	var g greetings
	nodes := o.answeredNodes()
	for _, b := range nodes {
		known := b.Slots
		for _, p := range b.Peers {
			known = known.Union(p.Slots)
		}
		for _, slots := range b.Importing {
			known = known.Union(slots) // no word of others changes these
		}
		if known.Count() == SlotCount {
			continue
		}
		for _, a := range nodes {
			_, met := b.knows(a.ID)
			if a == b || !met || a.Slots.Minus(known).Empty() || len(g.actions) == spreadMost {
				continue
			}
			if _, mutual := a.knows(b.ID); mutual {
				g.add(a, b)
			}
		}
	}
	return g.plan("nodes are told who owns slots")
}
