package topology

import "fmt"

// roll replaces Pods that were made from an older template, one at a time: the
// next one only when all others are in their place. Of each shard the replicas
// come first, then its primary hands over to one of them and follows. A Pod that
// is in no role is replaced before others: nothing is lost with it, and the new
// template may be what mends it.
func roll(d Desired, o *Observed) Plan {
	old := outdated(d, o)
	if old == nil {
		return Plan{}
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if n != old && !o.inPlace(n) {
			return Plan{Wait: WaitPods, Why: fmt.Sprintf("%s is replaced by one of the present template once %s is in its place", old.Pod, n.Pod)}
		}
	}
	head := o.Head(old.Shard)
	switch {
	case old.Ending:
		return Plan{Wait: WaitPods, Why: old.Pod + " ends, to be made from the present template"}
	case head == nil:
		return Plan{Wait: WaitPods, Why: fmt.Sprintf("%s is replaced once shard %d has a primary", old.Pod, old.Shard)}
	case !old.answered() && !old.Idle:
		return Plan{Wait: WaitPods, Why: fmt.Sprintf("%s is replaced by one of the present template once it is known what it holds", old.Pod)}
	case old != head:
		return act([]Action{{Kind: Replace, Pod: old.Pod, ID: old.ID}}, "Pods are replaced by those of the present template")
	case d.Members[old.Shard] == 1:
		return act([]Action{{Kind: Replace, Pod: old.Pod, ID: old.ID, Alone: true}},
			fmt.Sprintf("%s is replaced by one of the present template; its shard has no other node and does not serve until it is back", old.Pod))
	}
	return handOver(o, old, func(n *Node) bool { return d.wants(n) && !n.Outdated }, old.Pod+" is to be replaced by one of the present template")
}

// outdated picks the next Pod to replace: in the first shard that has one, one
// that is in no role, else the last of the replicas, else the primary.
func outdated(d Desired, o *Observed) *Node {
	var next *Node
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if !n.Outdated || !d.wants(n) || next != nil && n.Shard != next.Shard {
			continue
		}
		if next == nil || o.harm(n) <= o.harm(next) {
			next = n
		}
	}
	return next
}

// harm orders the members of a shard by what it costs to replace them.
func (o *Observed) harm(n *Node) int {
	switch {
	case n == o.Head(n.Shard):
		return 2
	case o.inPlace(n):
		return 1
	default:
		return 0
	}
}
