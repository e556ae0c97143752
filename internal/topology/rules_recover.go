package topology

import "fmt"

// recoverShards promotes a replica of a primary that has provably ended. With a
// majority of the primaries left to vote it asks for an election, which does not
// wait for the others to notice; if that is not won soon, or where no majority is
// left, as in every cluster of one or two shards, the replica takes over. Without
// proof the election is Redis's own. An empty or never-synced replica is no
// candidate.
func recoverShards(_ Desired, o *Observed) Plan {
	var wait Plan
	for _, c := range candidates(o) {
		p := promote(o, c)
		if len(p.Actions) > 0 {
			return p
		}
		if wait.Empty() {
			wait = p
		}
	}
	return wait
}

// candidate is the replica with the best copy of what a lost primary had.
type candidate struct {
	*Node
	// lost is the candidate's own line of the primary.
	lost Peer
	// succeeded: somebody else owns slots that the lost primary had. A takeover
	// would win over that owner with a still higher epoch, and delete what it has
	// written since.
	succeeded bool
	// electable: a majority of the primaries is left to vote.
	electable bool
	// blind: the candidate has not heard that its primary owns slots. It can
	// happen within seconds of its first synchronisation.
	blind bool
	// arriving: the lost primary owned no slots yet, and had got keys of slots
	// that are being moved to it.
	arriving bool
}

// candidates are one for each primary that no answered node is. A primary that
// some replica is still connected to is not lost.
func candidates(o *Observed) []candidate {
	best, linked := map[string]*candidate{}, map[string]bool{}
	for _, n := range o.answeredNodes() {
		lost, known := n.knows(n.Follows)
		if n.Primary || !known || o.byID(n.Follows) != nil {
			continue
		}
		linked[n.Follows] = linked[n.Follows] || n.LinkUp
		c := &candidate{Node: n, lost: lost, blind: lost.Slots.Empty()}
		if n.Holder && !n.LinkUp && c.before(best[n.Follows]) {
			best[n.Follows] = c
		}
	}
	if len(best) == 0 {
		return nil
	}
	ghosts, heads, owned, claims := o.ghosts(), o.heads(), o.Owned(), o.claims()
	electable := canElect(o, ghosts)
	var out []candidate
	for _, n := range o.answeredNodes() {
		c := best[n.Follows]
		if c == nil || c.Node != n || linked[n.Follows] {
			continue
		}
		g := ghosts[n.Follows]
		had := claim{owner: n.Follows, epoch: g.epoch, slots: c.lost.Slots}
		if c.blind && c.Keys > 0 {
			had.slots = g.lostSlots(heads[n.Shard], AllSlots.Minus(owned))
		}
		// An answered owner counts by its own word, whatever its epoch.
		c.succeeded = owned.overlaps(had.slots) || had.outdated(claims)
		c.arriving = had.slots.Empty() && c.Keys > 0 && heads[n.Shard] == nil
		c.electable = electable && !c.blind
		if !had.slots.Empty() || c.arriving {
			out = append(out, *c)
		}
	}
	return out
}

// canElect tells whether a majority of the primaries that own slots is left to
// vote.
func canElect(o *Observed, ghosts map[string]ghost) bool {
	alive, lost := 0, 0
	for _, n := range o.answeredNodes() {
		if n.Primary && !n.Slots.Empty() {
			alive++
		}
	}
	for _, g := range ghosts {
		if !g.slots.Empty() {
			lost++
		}
	}
	return alive > (alive+lost)/2
}

// before tells whether a candidate is the better one. One that knows its
// primary's slots comes first, because Redis can elect it.
func (c *candidate) before(other *candidate) bool {
	switch {
	case other == nil:
		return true
	case c.blind != other.blind:
		return other.blind
	case c.Offset != other.Offset:
		return c.Offset > other.Offset
	default:
		return c.ID < other.ID
	}
}

// promote decides about one candidate.
func promote(o *Observed, c candidate) Plan {
	switch {
	case c.succeeded:
		return Plan{Wait: WaitRedis, Why: fmt.Sprintf(
			"%s has yet to hear that another node owns the slots of the primary that it follows", c.Pod)}
	case !o.Ended[c.lost.ID] && c.electable:
		return Plan{Wait: WaitRedis, Why: fmt.Sprintf("the primary of shard %d does not answer; its replicas elect another", c.Shard)}
	case !o.Ended[c.lost.ID]:
		return Plan{Wait: WaitRedis, Why: fmt.Sprintf(
			"the primary of shard %d does not answer; %s is promoted once that process has provably ended", c.Shard, c.Pod)}
	}
	if names := o.unknownNodes(); c.blind && !c.arriving && len(names) > 0 {
		// The lost primary may come back with its data and its slots.
		return Plan{Wait: WaitPods, Why: fmt.Sprintf("the primary of shard %d has ended before its replica heard of its slots; "+
			"the replica is promoted once every node is known, and nothing is known of %s", c.Shard, join(names))}
	}
	if pod := unsure(o, c); pod != "" {
		return Plan{Wait: WaitRedis, Why: fmt.Sprintf(
			"the primary of shard %d has ended; %s is promoted once it is known what %s holds", c.Shard, c.Pod, pod)}
	}
	if c.electable {
		return elect(o, c)
	}
	why := fmt.Sprintf("the primary of shard %d has ended and no majority is left to elect another", c.Shard)
	switch {
	case c.arriving:
		why = fmt.Sprintf("the primary of shard %d has ended while it was getting its first slots", c.Shard)
	case c.blind:
		// Redis elects no replica of a primary without slots. Taken over, it is a
		// primary with keys and without slots, and is given those.
		why = fmt.Sprintf("the primary of shard %d has ended before its replica heard of its slots", c.Shard)
	}
	return takeOver(c, why)
}

func takeOver(c candidate, why string) Plan {
	return act([]Action{{Kind: Takeover, Pod: c.Pod, ID: c.lost.ID}}, why)
}

// elect has a candidate elected, and lets it take over if that does not happen
// soon: a voter may not know it as a replica yet, or have voted for this shard a
// moment ago. The primaries vote once an epoch, so that one election at a time is
// asked for in the whole cluster.
func elect(o *Observed, c candidate) Plan {
	switch asked, ok := o.Asked[c.ID]; {
	case ok && asked.Kind == Force && asked.Due:
		return takeOver(c, fmt.Sprintf("the primary of shard %d has ended, and %s was not elected", c.Shard, c.Pod))
	case ok && asked.Kind == Force:
		return Plan{Wait: WaitRedis, Why: fmt.Sprintf("the primary of shard %d has ended; %s is being elected", c.Shard, c.Pod)}
	}
	for _, n := range o.answeredNodes() {
		if asked, ok := o.Asked[n.ID]; ok && !n.Primary && asked.Kind == Force && !asked.Due {
			return Plan{Wait: WaitRedis, Why: fmt.Sprintf("the primary of shard %d has ended; its replica is elected after %s", c.Shard, n.Pod)}
		}
	}
	return act([]Action{{Kind: Force, Pod: c.Pod, ID: c.lost.ID}}, fmt.Sprintf("the primary of shard %d has ended", c.Shard))
}

// unsure names a Pod of the candidate's shard that may run a better copy, or
// the lost primary itself come back, and does not answer. It does not matter
// when it has no address, so that nothing runs in it; when it is at the very
// address where the end of the lost primary was proven, whose next process
// starts with nothing newer; and when the candidate itself cannot reach that
// node for the time that Redis takes to mark it, which bounds the wait.
func unsure(o *Observed, c candidate) string {
	for i := range o.Nodes {
		m := &o.Nodes[i]
		if m.Knowledge != Unknown || m.Shard != c.Shard || m.IP == "" || m.IP == c.lost.IP {
			continue
		}
		p, known := c.at(m.IP)
		switch {
		case known && !p.Failed && !o.Ended[p.ID]:
			return m.Pod
		case !known && !c.lost.Failed:
			return m.Pod
		}
	}
	return ""
}

// consent lets a primary start that has lost its data, and that the start guard
// holds back because its replicas would copy the emptiness. It is right when none
// of them has anything: they are all known, and none holds a copy. Its Pod is made
// anew, so that it comes back as a new node.
func consent(_ Desired, o *Observed) Plan {
	var actions []Action
	var wait Plan
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if !n.Held {
			continue
		}
		if p := mayStartEmpty(o, n); !p.Empty() {
			wait = p
			continue
		}
		actions = append(actions, Action{Kind: Consent, Pod: n.Pod})
	}
	if len(actions) > 0 {
		return act(actions, "nodes that have lost their data, of which nobody has a copy, start anew")
	}
	return wait
}

// mayStartEmpty says what speaks against it; an empty plan is nothing.
func mayStartEmpty(o *Observed, held *Node) Plan {
	if o.Volumes {
		return Plan{Wait: WaitPerson, Why: held.Pod + " does not start, because its volume lacks the data of the slots that it owns: " +
			"put the data back, or delete the Pod and its volume"}
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		switch {
		case n.Shard != held.Shard || n.Held || n.Idle || n.Knowledge == Blank:
		case !n.answered():
			return Plan{Wait: WaitPods, Why: fmt.Sprintf("%s has lost its data, and starts once it is known what %s holds", held.Pod, n.Pod)}
		case n.LinkUp || n.Holder || !n.Slots.Empty():
			return Plan{Wait: WaitRedis, Why: fmt.Sprintf("%s has lost its data, and %s takes its place", held.Pod, n.Pod)}
		case n.Keys > 0:
			return Plan{Wait: WaitPerson, Why: fmt.Sprintf("%s has lost its data, and %s still holds a copy that cannot be promoted safely: "+
				"look at that node, then either let it take over (CLUSTER FAILOVER TAKEOVER) or delete its Pod", held.Pod, n.Pod)}
		}
	}
	return Plan{}
}
