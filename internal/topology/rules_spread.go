package topology

// spreadMost bounds the greetings of one pass.
const spreadMost = 64

// spread tells nodes who owns slots that they know no owner of, and primaries whom
// a replica follows that they have not heard of: without that, they do not vote for
// it, and its own primary ignores its wish to take over. Redis does not announce
// ADDSLOTS and REPLICATE: the others hear of it when they are next pinged, which can
// take half of cluster-node-timeout for each, and in a large cluster that has to do
// for replicas. A node that is met by one that it
// knows already only reads the greeting's header, and the header holds the sender's
// role and slots. One greeting at a time is enough: it either arrives or is dropped
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
		for _, a := range nodes {
			line, met := b.knows(a.ID)
			news := known.Count() < SlotCount && !a.Slots.Minus(known).Empty() ||
				len(nodes) <= healMost && b.Primary && !b.Slots.Empty() && !a.Primary && a.LinkUp && a.Follows != line.Follows
			if a == b || !met || !news || len(g.actions) == spreadMost {
				continue
			}
			if _, mutual := a.knows(b.ID); mutual {
				g.add(a, b)
			}
		}
	}
	return g.plan("nodes are told who owns slots and who follows whom")
}
