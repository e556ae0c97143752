package topology

import "fmt"

// awaitSeeds waits until every shard of a backup is in its place. Nothing else is
// done before: a node that is still being filled looks like one that has nothing,
// and its slots like slots that nobody has.
func awaitSeeds(d Desired, o *Observed) Plan {
	var owned Slots
	for shard := range d.Seeds {
		n := o.seed(shard)
		switch {
		case n == nil || !n.answered():
			return Plan{Wait: WaitPods, Why: fmt.Sprintf("%d shards are being filled from the backup; the first node of shard %d is not up yet", d.Seeds, shard)}
		case !n.Primary || n.Slots.Empty():
			return Plan{Wait: WaitPerson, Why: n.Pod + " should have come up with slots of the backup and has none: delete this cluster and restore into a new one"}
		case owned.overlaps(n.Slots):
			return Plan{Wait: WaitPerson, Why: n.Pod + " has come up with slots that another node has: delete this cluster and restore into a new one"}
		}
		owned = owned.Union(n.Slots)
	}
	if missing := AllSlots.Minus(owned); !missing.Empty() {
		return Plan{Wait: WaitPerson, Why: fmt.Sprintf("the shards of the backup have all come up, and slots %s are not among them: delete this cluster and restore into a new one", missing)}
	}
	return Plan{Wait: WaitRedis, Why: "every shard of the backup is in its place; the Pods' template is changed before they meet"}
}

// Seeded tells whether every shard of a backup was seen in its place, with all
// slots among them.
func Seeded(d Desired, o *Observed) bool {
	seen, _ := believed(o)
	return d.Seeds > 0 && awaitSeeds(d, seen).Wait == WaitRedis
}

// seed is the first member of a shard; nil when there is none.
func (o *Observed) seed(shard int) *Node {
	for i := range o.Nodes {
		if n := &o.Nodes[i]; n.Shard == shard && n.Ordinal == 0 {
			return n
		}
	}
	return nil
}

// MovesSlots tells whether slots are on their way, or about to be by this plan.
func MovesSlots(p Plan, o *Observed) bool {
	for _, a := range p.Actions {
		if a.Kind == MoveSlots {
			return true
		}
	}
	for i := range o.Nodes {
		if n := &o.Nodes[i]; n.answered() && n.Primary && n.open() {
			return true
		}
	}
	return false
}
